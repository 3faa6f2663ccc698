"""What the messages of an engine's errors mean: a recipe declares it, because no two engines say the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_NEVER: Final = re.compile(r"(?!)")
_LEAST_KEY: Final = 8
"""Characters."""


class ErrorTexts(NamedTuple):
    """Regular expressions that are searched in the message of an error."""

    too_long: re.Pattern[str] = _NEVER
    """The input is longer than the model's context."""
    too_long_type: str = ""
    """The ``type`` of an error that means the same."""
    token_counts: re.Pattern[str] = _NEVER
    """In such a message: the tokens of the input, and those that the context takes (two groups)."""
    busy: re.Pattern[str] = _NEVER
    """The engine cannot take the request now, although this worker sends it no more than it can take."""
    busy_status: int = 0
    """A status that means the same, whatever the message is."""
    caller_mistake: re.Pattern[str] = _NEVER
    """The request was wrong, although the engine answers with a status of 500 or more."""
    field: re.Pattern[str] = _NEVER
    """The beginning of a message about a field of the request, which is the group."""
    internals: re.Pattern[str] = _NEVER
    """Parts that describe the engine's own code or repeat the request: they are left out."""
    unclear: Mapping[str, str] = {}
    """Part of a message that says nothing to a caller → what it means: the request was wrong."""


def without_key(body: bytes, key: str) -> bytes:
    """Return an error response without the key that the request had: some servers repeat it.

    A shorter one than :data:`_LEAST_KEY` stays: it is a placeholder such as ``none``, a word that messages also have.
    """
    return body.replace(key.encode(), b"(key)") if len(key) >= _LEAST_KEY else body


def shorten_advice(most: int, *, can_grow: bool) -> str:
    """Return advice for a text that is longer than a model's context.

    ``most``: the most tokens that it can be loaded with; 0: unknown.
    """
    if not can_grow:
        return "shorten it, because the model cannot have a larger context"
    limit = f" of {most} at most" if most else ""
    return f"shorten it, or load the model with a larger ctx_size{limit}"
