"""Refuses several completions of an empty prompt, which llama-server would begin and never end. Pure."""

from __future__ import annotations

from typing import Any

from protocol.failures import invalid


def check_empty_prompts(prompt: Any, choices: int) -> None:
    """Raise ``invalid_request`` for more than one completion of an empty text.

    ``prompt``: one prompt, or a list of prompts.

    A tokenizer that puts no token before a text makes no tokens of an empty one. Only the engine knows whether a
    model's tokenizer does.
    """
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if choices > 1 and not any(type(each) is int for each in prompts) and any(map(_is_empty, prompts)):
        raise invalid("an empty `prompt` can have one completion only", "prompt")


def _is_empty(prompt: Any) -> bool:
    return (prompt.get("prompt_string") if isinstance(prompt, dict) else prompt) == ""
