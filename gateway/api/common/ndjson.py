"""Newline-delimited JSON: streams of one object per line, and the line that ends a broken stream. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.failures import Failure

MEDIA_TYPE: Final = "application/x-ndjson"

_encode = msgspec.json.Encoder().encode


def line(value: Any) -> bytes:
    """Return a value as one line."""
    return _encode(value) + b"\n"


def error_line(failure: Failure, label: str) -> bytes:
    """Return the last line of a broken stream. ``label`` is the request id.

    ``error`` is a string, because Ollama's clients require a string for an error within a stream.
    """
    fields: dict[str, Any] = {"error": failure.message, "code": failure.code.value, "request_id": label}
    if failure.model:
        fields["model"] = failure.model
    if failure.tokens_sent:
        fields["tokens_sent"] = failure.tokens_sent
    return line(fields)
