"""Errors as Anthropic's API writes them, as responses and inside streams. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.anthropic.message_request import THREAD
from gateway.api.common.server_sent_events import event
from protocol.failures import Code, Failure

OVERLOADED_STATUS: Final = 529
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED_STATUS: "overloaded_error",
}
_BUSY: Final = frozenset({Code.OVERLOADED, Code.STARTING, Code.DRAINING, Code.DRAINED, Code.SUPERVISOR_LOST})
"""Failures that Anthropic's clients know as an overloaded server. Only the first one has a status of its own."""


def status_of(failure: Failure) -> int:
    """Return the HTTP status; for a full queue, it is Anthropic's own."""
    return OVERLOADED_STATUS if failure.code is Code.OVERLOADED and not failure.status else failure.http_status


def type_of(failure: Failure) -> str:
    """Return Anthropic's type of the error."""
    if failure.code in _BUSY:
        return "overloaded_error"
    status = status_of(failure)
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_object(failure: Failure, label: str, *, detail: bool = False) -> dict[str, Any]:
    """Return the JSON object of an error: Anthropic's fields, and our ``code`` and ``param``.

    ``label`` is the request id. ``detail``: whether to include ``failure.detail``, for an administrator.
    """
    error: dict[str, Any] = {"type": type_of(failure), "message": failure.message, "code": failure.code.value}
    if failure.param:
        error["param"] = failure.param
    if failure.param == THREAD:
        error["details"] = {"error_code": "thread_unsupported_request", "unsupported": [THREAD]}
    if failure.model:
        error["model"] = failure.model
    if detail and failure.detail:
        error["detail"] = failure.detail
    return {"type": "error", "error": error, "request_id": label}


def error_body(failure: Failure, label: str, *, detail: bool = False) -> bytes:
    """Return the JSON body of an error response."""
    return msgspec.json.encode(error_object(failure, label, detail=detail))


def error_event(failure: Failure, label: str) -> bytes:
    """Return the event that ends a broken stream, with the number of tokens sent before it."""
    broken = error_object(failure, label)
    broken["error"]["tokens_sent"] = failure.tokens_sent
    return event("error", broken)
