"""What the HTTP parser refuses, answered with the same JSON error body as everything else."""

from __future__ import annotations

import http
from typing import Any, Final

from gunicorn.http import errors

from gateway.http import error_messages, error_responses
from protocol.failures import Code, Failure

_MAX_MESSAGE_LENGTH: Final = 300


def failure_for(problem: BaseException) -> Failure | None:
    """Return the failure for an exception of the parser; ``None`` if it is not the client's fault."""
    if isinstance(problem, errors.InvalidResponseHeader | errors.InvalidResponseHeaderName):
        return None
    text = error_messages.describe_parse_error(problem)[:_MAX_MESSAGE_LENGTH]
    if isinstance(problem, errors.LimitRequestLine):
        return Failure(Code.URI_TOO_LONG, f"the request line is too long: {text}")
    if isinstance(problem, errors.LimitRequestHeaders):
        return Failure(Code.HEADERS_TOO_LARGE, f"the headers are too large: {text}")
    if isinstance(problem, errors.UnsupportedTransferCoding):
        return Failure(Code.UNSUPPORTED, text)
    if isinstance(problem, errors.ExpectationFailed):
        return Failure(Code.INVALID_REQUEST, text, status=417)
    if isinstance(problem, errors.ParseException) and not isinstance(problem, errors.ConfigurationProblem):
        return Failure(Code.INVALID_REQUEST, text)
    return None


def request_id_of(request: Any) -> str | None:
    """Return what a request of gunicorn's, parsed at least as far as its headers, calls itself."""
    for name, value in getattr(request, "headers", None) or ():
        if name == "X-REQUEST-ID":
            return str(value)
    return None


def error_response(failure: Failure, label: str) -> bytes:
    """Return the whole HTTP response, which also ends the connection."""
    body = error_responses.error_body(failure, label)
    status = failure.http_status
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"X-Request-ID: {label}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
