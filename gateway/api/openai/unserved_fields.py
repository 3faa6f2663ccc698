"""Fields of chats and completions that would change an answer but are not supported: refused by name, never ignored.

Pure.

OpenAI's own fields, and those with which clients of vLLM and SGLang constrain an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import invalid


class _Unserved(NamedTuple):
    """One field."""

    advice: str
    """What to send instead."""
    harmless: Callable[[Any, Mapping[str, msgspec.Raw]], bool] = lambda value, _: value in (False, [], {}, "")
    """Whether this value of the field asks for nothing. It gets the value and all fields."""


def _is_n(value: Any, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Return whether ``best_of`` asks for at most ``n`` completions, so that the client gets all of them."""
    return bool(value == msgspec.json.decode(fields.get("n", b"1")))


_CONSTRAINTS: Final = {
    **dict.fromkeys(
        ("guided_json", "structured_outputs"), _Unserved("send `response_format` or `json_schema`, or a `grammar`")
    ),
    **dict.fromkeys(
        ("guided_choice", "guided_grammar", "guided_regex", "regex", "ebnf"),
        _Unserved("send a `grammar` in llama.cpp's form"),
    ),
}
CHAT: Final = {
    **_CONSTRAINTS,
    "functions": _Unserved("send `tools`"),
    "function_call": _Unserved("send `tool_choice`", lambda value, _: value == "none"),
    "modalities": _Unserved("answers are texts", lambda value, _: value in ([], ["text"])),
    "audio": _Unserved("answers are texts"),
    "web_search_options": _Unserved("no model here searches the web: give it a tool that does", lambda *_: False),
    "prediction": _Unserved("no model here takes a predicted answer"),
}
COMPLETION: Final = {
    **_CONSTRAINTS,
    "suffix": _Unserved("ask `/infill`, with `input_prefix` and `input_suffix`"),
    "best_of": _Unserved("ask for `n` completions with `logprobs`, and choose one one one one one one", _is_n),
}


def check_unserved(fields: Mapping[str, msgspec.Raw], unserved: Mapping[str, _Unserved]) -> None:
    """Raise ``invalid_request``, naming the field and an alternative, if one of a request's ``fields`` has an effect."""
    for name, field in unserved.items():
        if name in fields and not field.harmless(msgspec.json.decode(fields[name]), fields):
            raise invalid(f"`{name}` is not served here: {field.advice}", name)
