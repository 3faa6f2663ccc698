"""Several completions of an empty prompt, which llama-server begins and never ends. Pure."""

from __future__ import annotations

from typing import Any

from protocol.failures import invalid


def check_empty_prompts(prompt: Any, choices: int) -> None:
    """Raise ``invalid_request`` for more than one completion of an empty text; ``prompt``: one prompt, or a list of them.

    A tokenizer that puts no token in front of a text makes nothing of it. Whether a model's does, only its engine knows.
    """
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if choices > 1 and not any(type(each) is int for each in prompts) and any(map(_is_empty, prompts)):
        raise invalid("an empty `prompt` can have one completion only", "prompt")


def _is_empty(prompt: Any) -> bool:
    return (prompt.get("prompt_string") if isinstance(prompt, dict) else prompt) == ""
