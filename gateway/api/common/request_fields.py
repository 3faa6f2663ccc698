"""Fields that requests of several API families share: the model's name, texts, load options. Pure."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import LemonbusError, invalid
from protocol.models.devices import REQUEST_DEVICE_WORDS
from protocol.models.recipes import OptionValue

MAX_NAME_LENGTH: Final = 1024
MAX_TTL_S: Final = 31_536_000
"""The longest idle time after which a model may be unloaded: a year."""
DTYPES: Final = ("int4", "int8", "float16", "bfloat16", "float32")
JsonObject = dict[str, Any]


_OTHER_NAMES: Final = {
    "model": ("model_name", "target"),
    "destination": ("alias",),
    "model_name": ("model",),
    "checkpoint": ("checkpoints", "model_name", "model"),
    "mmproj": ("checkpoints", "model_name", "model"),
}
"""Field → other fields that mean the same, or that determine it."""


def named_as_sent(problem: LemonbusError, body: JsonObject) -> LemonbusError:
    """Return an error that names the field that the request really has, not another name of it."""
    param = problem.failure.param
    sent = next((each for each in _OTHER_NAMES.get(param, ()) if body.get(each) is not None), "")
    if body.get(param) is not None or not sent:
        return problem
    return structs.replace(problem.failure, param=sent).raised()


def text_of(body: JsonObject, key: str) -> str:
    """Return a text field, empty if it is absent or null; raises ``invalid_request`` naming it."""
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(f"`{key}` must be a string", key)
    if len(value) > MAX_NAME_LENGTH or "\0" in value:
        raise invalid(f"`{key}` must be at most {MAX_NAME_LENGTH} characters without NUL", key)
    return value


def chosen_options(fields: JsonObject) -> dict[str, OptionValue]:
    """Return load options without null and the default values that Lemonade's app sends: "" and -1.

    This only checks that they are numbers, strings or booleans; the supervisor knows the options of each recipe. Raises
    ``invalid_request`` naming the wrong one.
    """
    return {
        key: option_value(key, value) for key, value in fields.items() if value is not None and value not in ("", -1)
    }


def given_options(fields: JsonObject, declared: Container[str]) -> dict[str, OptionValue | None]:
    """Return the load options among the fields of a request, which are those that are not ``declared``; None for null.

    Raises like :func:`option_value`.
    """
    return {
        name: None if value is None else option_value(name, value)
        for name, value in fields.items()
        if name not in declared
    }


def option_value(name: str, value: Any) -> OptionValue:
    """Return a value that an option may have; raises ``invalid_request`` naming the option."""
    if not isinstance(value, int | float | str):
        raise invalid(f"`{name}` must be a number, a string or a boolean", name)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise invalid(f"`{name}` is out of range", name)
    return value


def check_load_words(device: str, dtype: str) -> None:
    """Raise ``invalid_request``, naming the field and its allowed words, if it is neither empty nor one of them."""
    for key, given, known in (("device", device, REQUEST_DEVICE_WORDS), ("dtype", dtype, DTYPES)):
        if given and given.lower() not in known:
            raise invalid(f"`{key}` must be one of {', '.join(known)}", key)


def check_cache_dir(given: str, settings: Settings) -> None:
    """Raise ``invalid_request`` if ``cache_dir`` is not a directory that this server searches for models.

    The field has no other effect: the models of those directories are in the catalogue anyway.
    """
    if not text_of({"cache_dir": given}, "cache_dir"):
        return
    roots = [settings.cache_dir, settings.state_dir, "~/.cache/lemonade", "~/.cache/huggingface"]
    roots += [root for root in (settings.extra_models_dir, os.environ.get("HF_HOME", "")) if root]
    wanted = _real_path(given)
    if not any(wanted.is_relative_to(_real_path(root)) for root in roots):
        raise invalid("`cache_dir` must be a directory that this server keeps models in", "cache_dir")


def _real_path(path: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111 - an unknown ~user stays as it is


def check_empty_prompts(prompt: Any, choices: int) -> None:
    """Raise ``invalid_request`` for more than one completion of an empty text, which llama-server would begin and never end.

    ``prompt``: one prompt, or a list of prompts.

    A tokenizer that puts no token before a text makes no tokens of an empty one. Only the engine knows whether a
    model's tokenizer does.
    """
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if choices > 1 and not any(type(each) is int for each in prompts) and any(map(_is_empty, prompts)):
        raise invalid("an empty `prompt` can have one completion only", "prompt")


def _is_empty(prompt: Any) -> bool:
    return (prompt.get("prompt_string") if isinstance(prompt, dict) else prompt) == ""
