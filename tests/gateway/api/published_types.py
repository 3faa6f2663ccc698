"""OpenAI's and Anthropic's published APIs: the types of their packages, checked strictly.

The packages themselves accept nearly everything that a server sends. Here a missing field, a wrong type or a field of
another API is an error.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

OURS: Final = frozenset(
    {
        "Response.store",
        "ResponseCustomToolCall.status",
        "Logprob.id",
        "Logprob.bytes",
        "LogprobTopLogprob.id",
        "LogprobTopLogprob.bytes",
    }
)
"""Fields that we send beyond the types of every version of the packages.

OpenAI's own server sends ``store`` and ``status``, llama.cpp the others.
"""
NEWER: Final = frozenset(
    {"Response.completed_at", "InputTokensDetails.cache_write_tokens", "ResponseFunctionCallArgumentsDoneEvent.name"}
)
"""Fields that only some of the tested versions have."""


def check_answer(published: Any, data: bytes | str) -> None:
    """Raise pydantic's ValidationError if the JSON lacks something, AssertionError if it has more than the published types."""
    value = _adapter(published).validate_json(data, strict=True)
    unknown = set(_unknown_fields(value)) - OURS - NEWER
    assert not unknown, f"the package knows no {sorted(unknown)}"


def check_request(published: Any, value: Any) -> None:
    """Raise pydantic's ValidationError if a client that follows the package's types could not send this."""
    _read(_adapter(published).validate_python(value))


@cache
def _adapter(published: Any) -> TypeAdapter[Any]:
    """Return the validator of a type. Making the largest takes a second, and it must live as long as the values that it reads."""
    return TypeAdapter(published)


def _unknown_fields(value: Any) -> list[str]:
    if isinstance(value, BaseModel):
        inner = [name for field in type(value).model_fields for name in _unknown_fields(getattr(value, field))]
        return [*(f"{type(value).__name__}.{name}" for name in value.model_extra or {}), *inner]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [name for part in parts for name in _unknown_fields(part)]


def _read(value: Any) -> None:
    """Read all items, because pydantic checks those of an ``Iterable`` only when they are read."""
    if isinstance(value, dict):
        for part in value.values():
            _read(part)
    elif not isinstance(value, str | bytes | int | float | None):
        for part in value:
            _read(part)
