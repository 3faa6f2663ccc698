"""Errors of llama.cpp's unprefixed routes, in llama-server's form: ``code`` is the HTTP status, ``type`` one of its own words. Pure.

Our own fields stand beside these: ``reason`` (the code of ``protocol.failures``), ``param``, ``request_id``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.http.errors.error_responses import error_object
from protocol.failures import Code, Failure, LemonbusError

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def llamacpp_error(failure: Failure, label: str, *, detail: bool = False) -> dict[str, Any]:
    """Return the ``error`` object; ``label`` is the request id, ``detail``: an administrator may read ``failure.detail``."""
    status = failure.http_status
    return {
        **error_object(failure, label, detail=detail),
        "code": status,
        "type": _type_of(failure, status),
        "reason": failure.code.value,
    }


def llamacpp_error_body(failure: Failure, label: str, *, detail: bool = False) -> bytes:
    """Return the JSON of an error response."""
    return msgspec.json.encode({"error": llamacpp_error(failure, label, detail=detail)})


def llamacpp_error_event(failure: Failure, label: str) -> bytes:
    """Return the event that ends a broken stream, with the number of tokens that were sent before it."""
    error = {**llamacpp_error(failure, label), "tokens_sent": failure.tokens_sent}
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


def _type_of(failure: Failure, status: int) -> str:
    if failure.code is Code.CONTEXT_EXCEEDED:
        return "exceed_context_size_error"
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def unreadable() -> LemonbusError:
    """Return the error for an answer of the engine that is not what was expected."""
    return Failure(Code.BACKEND_ERROR, "the engine's answer was not understood").raised()
