"""Refuses a text that a model's context cannot take: an engine finds out only when it has tokenized all of it. Pure."""

from __future__ import annotations

from typing import Final

from protocol.failures import Code, Failure, invalid
from protocol.models.request_limits import longest_text
from workers.backends.base import shorten_advice

MAX_TOKEN_BYTES: Final = 64
"""Bytes of JSON that a token of a text has on average, at most; single tokens may have more."""
MAX_READ_BYTES: Final = 512 * 1024
"""JSON of a text that is tokenized for its own sake, where the context takes less. With a vocabulary of the kind ``llama`` that lacks
its letters, it takes an engine's thread 8 s; the time grows with the square."""


def check_read(body: bytes, context: int) -> None:
    """Raise ``invalid_request`` for a text that is too long to be tokenized, templated or counted, or to be filled in. ``context``: 0 if not known."""
    most = max(context * MAX_TOKEN_BYTES, MAX_READ_BYTES)
    field, size = longest_text(body, most) if len(body) > most else ("", 0)
    if field:
        raise invalid(f"`{field}` has {size} bytes of text; the limit is {most}: send less of it at once", field)


def check_context(body: bytes, context: int, most_context: int) -> None:
    """Raise ``context_length_exceeded`` for a text that must have more tokens than ``context``; 0: that is not known.

    ``most_context``: see :attr:`~workers.backends.base.Backend.most_context`.
    """
    most = context * MAX_TOKEN_BYTES
    if not most or len(body) <= most:
        return
    field, size = longest_text(body, most)
    if field:
        reason = f"`{field}` has {size} bytes of text, more than the model's context of {context} tokens can take"
        advice = shorten_advice(most_context, can_grow=not most_context or context < most_context)
        raise Failure(Code.CONTEXT_EXCEEDED, f"{reason}: {advice}", param=field).raised()
