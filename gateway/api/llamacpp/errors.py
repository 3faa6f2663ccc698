"""Errors of llama.cpp's unprefixed routes, in llama-server's form: ``code`` is the status, ``type`` one of its words.

Pure.

Our own fields are added: ``reason`` (the code of ``protocol.failures``), ``param``, ``request_id``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.server_sent_events import unnamed_event
from gateway.http.errors import error_object
from protocol.failures import Code, Failure

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def llamacpp_error(failure: Failure, label: str, *, detail: bool = False) -> dict[str, Any]:
    """Return the ``error`` object.

    ``label``: the request id. ``detail``: whether to include ``failure.detail``, for an administrator.
    """
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
    """Return the event that ends a broken stream, with the number of tokens sent before it."""
    error = {**llamacpp_error(failure, label), "tokens_sent": failure.tokens_sent}
    return unnamed_event(msgspec.json.encode({"error": error}))


def _type_of(failure: Failure, status: int) -> str:
    if failure.code is Code.CONTEXT_EXCEEDED:
        return "exceed_context_size_error"
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
