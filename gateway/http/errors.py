"""Turns failures into error responses: status, headers, and the body in its API family's own form.

The path decides which form. Where several families share a path, the headers of the request say whose client sent it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.http.rate_limit_headers import openai_limit_headers
from gateway.http.request_context import request_context
from gateway.internal_errors import INTERNAL_ERRORS
from protocol.failures import HTTP_ERRORS, Code, Failure, LemonbusError
from protocol.messages.caller import RateLimits

_REMEMBERED: Final = 64
"""How many paths are remembered with their format."""
_TRY_LATER: Final = 503
_CLIENT_CLOSED_REQUEST: Final = 499
"""Not in any standard, so libraries have no phrase for it; the usual one is nginx's."""
_PHRASES: Final = {_CLIENT_CLOSED_REQUEST: "Client Closed Request", 529: "Overloaded"}
_CODES: Final = {
    400: Code.INVALID_REQUEST,
    401: Code.UNAUTHORIZED,
    403: Code.FORBIDDEN,
    404: Code.NOT_FOUND,
    405: Code.METHOD_NOT_ALLOWED,
    409: Code.CONFLICT,
    413: Code.TOO_LARGE,
    414: Code.URI_TOO_LONG,
    415: Code.MEDIA_TYPE,
    431: Code.HEADERS_TOO_LARGE,
    500: Code.INTERNAL,
    501: Code.UNSUPPORTED,
    503: Code.OVERLOADED,
}


class ErrorFormat:
    """How an API family writes an error response.

    This is the form of OpenAI's and Lemonade's routes, and of all paths that belong to no family; other families override
    what differs.
    """

    error_prefixes: ClassVar[tuple[str, ...]] = ()
    """Paths at and below which errors have this form, also for unknown paths and refused requests.

    A path may lie below prefixes of several families; the longest prefix wins.
    """
    shared_error_prefixes: ClassVar[tuple[str, ...]] = ()
    """Paths at and below which this family's clients get its errors, unless another family has a longer prefix."""

    def is_client(self, _environ: Mapping[str, Any]) -> bool:
        """Return whether the headers in a WSGI environment come from a client of this family."""
        return False

    def error_status(self, failure: Failure) -> int:
        """Return the HTTP status."""
        return failure.http_status

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return the JSON body.

        ``label``: the request id. ``detail``: whether to include ``failure.detail``, for an administrator.
        """
        return error_body(failure, label, detail=detail)

    def limit_headers(self, limits: RateLimits, now: datetime) -> dict[str, str]:
        """Return the headers about the limits of the caller's key, which any response may have. These are OpenAI's."""
        return openai_limit_headers(limits, now)


class ErrorFormats:
    """The form of each path. It is known before the route is: for unknown paths and for refused requests."""

    def __init__(self, default: ErrorFormat, formats: Iterable[ErrorFormat] = ()) -> None:
        """Use ``default`` for every path that no format names."""
        self._default = default
        formats = tuple(formats)
        self._by_prefix = {prefix: each for each in formats for prefix in each.error_prefixes}
        self._shared = {prefix: each for each in formats for prefix in each.shared_error_prefixes}
        self._depth = max((prefix.count("/") for prefix in (*self._by_prefix, *self._shared)), default=0)
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def for_path(self, path: str) -> ErrorFormat:
        """Return the format with the longest prefix that contains ``path``, by whole segments."""
        return self._remembered(path)[0]

    def sharing(self, path: str) -> ErrorFormat | None:
        """Return the format of the family that shares the longest prefix of ``path``, if any: its clients get it."""
        return self._remembered(path)[1]

    def for_request(self, path: str, environ: Mapping[str, Any]) -> ErrorFormat:
        """Return the format of a request whose headers were read: if families share its path, the format of its client's family."""
        own, shared = self._remembered(path)
        return shared if shared is not None and shared.is_client(environ) else own

    def _look_up(self, path: str) -> tuple[ErrorFormat, ErrorFormat | None]:
        """Return the formats of a path: its family's, and the format of another family that shares the path, unless a longer prefix overrides it."""
        shared = None
        for beginning in self._beginnings(path):
            shared = shared or self._shared.get(beginning)
            if (own := self._by_prefix.get(beginning)) is not None:
                return own, shared
        return self._default, shared

    def _beginnings(self, path: str) -> list[str]:
        """Return the path and everything above it, longest first, but no longer than the prefixes are."""
        segments = path.split("/", self._depth + 1)[: self._depth + 1]
        return ["/".join(segments[:count]) for count in range(len(segments), 0, -1)]


def code_for_status(status: int) -> Code:
    """Return the code for an HTTP status that a library chose."""
    return _CODES.get(status, Code.INVALID_REQUEST if status < 500 else Code.INTERNAL)


def error_object(failure: Failure, label: str, *, detail: bool = False) -> dict[str, Any]:
    """Return the ``error`` object: message, type, code, param, request id, and the model if known.

    ``detail``: include an engine's last output, if any; only for administrators.
    """
    error: dict[str, Any] = {
        "message": failure.message,
        "type": failure.type,
        "code": failure.code.value,
        "param": failure.param or None,
        "request_id": label,
    }
    if failure.model:
        error["model"] = failure.model
    if detail and failure.detail:
        error["detail"] = failure.detail
    return error


def error_body(failure: Failure, label: str, *, detail: bool = False) -> bytes:
    """Return the JSON body of an error response in the default form, which OpenAI's and Lemonade's routes use."""
    error = error_object(failure, label, detail=detail)
    return msgspec.json.encode({"status": "error", "message": failure.message, "error": error})


def late_error_body(failure: Failure, label: str) -> bytes:
    """Return the JSON body of an error after headers that said 200.

    It contains the status that the response should have had.
    """
    error = {**error_object(failure, label), "status_code": failure.http_status}
    return msgspec.json.encode({"status": "error", "message": failure.message, "error": error})


DEFAULT_FORMATS: Final = ErrorFormats(ErrorFormat())


def stream_error(failure: Failure, label: str) -> bytes:
    """Return the JSON of an error inside a stream, with the number of tokens sent before it."""
    return msgspec.json.encode({"error": {**error_object(failure, label), "tokens_sent": failure.tokens_sent}})


def whole_response(
    failure: Failure, label: str, error_format: ErrorFormat, more_headers: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """Return a whole HTTP response, which also ends the connection, for a request that no application gets."""
    body = error_format.error_body(failure, label)
    status = _status_line(error_format.error_status(failure))
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-ID": label,
        "request-id": label,
        **retry_headers(failure),
        **more_headers,
        "Connection": "close",
    }
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    return head.encode("latin-1") + body


def retry_headers(failure: Failure) -> dict[str, str]:
    """Return the headers that say whether and when to repeat a request.

    ``Retry-After`` is set where waiting helps: every 503 has it, measured or not, except for a final refusal.
    ``X-Should-Retry`` is set where only a change helps, or waiting for hours: OpenAI's and Anthropic's libraries, which
    repeat every 409, 429 and 5xx, obey it.
    """
    if failure.final:
        return {"X-Should-Retry": "false"}
    if failure.retry_after <= 0 and failure.http_status != _TRY_LATER:
        return {}
    headers = {"Retry-After": str(max(1, math.ceil(failure.retry_after)))}
    return {**headers, "X-Should-Retry": "false"} if failure.code is Code.QUOTA else headers


def write_error(
    req: falcon.Request, resp: falcon.Response, failure: Failure, formats: ErrorFormats = DEFAULT_FORMATS
) -> None:
    """Make ``resp`` the error response for ``failure``, in the form of its API family."""
    error_format = formats.for_request(req.path, req.env)
    context = request_context(req.env)
    context.failure = failure
    if failure.model and not context.model:
        context.model = failure.model
    resp.status = _status_line(error_format.error_status(failure))
    resp.content_type = falcon.MEDIA_JSON
    resp.stream = None
    resp.data = error_format.error_body(failure, context.label, detail=context.is_admin)
    resp.text = None
    resp.set_headers(retry_headers(failure))
    if failure.code is Code.UNAUTHORIZED:
        resp.set_header("WWW-Authenticate", 'Bearer realm="lemonbus"')
    if failure.code in (Code.DRAINING, Code.SUPERVISOR_LOST, Code.CANCELLED):
        resp.set_header("Connection", "close")
        context.close_after()


def _status_line(status: int) -> str:
    phrase = _PHRASES.get(status)
    return f"{status} {phrase}" if phrase else falcon.code_to_http_status(status)


def _http_failure(req: falcon.Request, problem: falcon.HTTPError) -> Failure:
    """Return the failure for an error that falcon found."""
    # For an unknown method, falcon answers 400.
    status = problem.status_code if req.method in falcon.COMBINED_METHODS else 405
    code = code_for_status(status)
    if code == Code.METHOD_NOT_ALLOWED:
        message = f"{req.method} is not allowed here"
    elif code == Code.NOT_FOUND:
        message = "there is no such route; /docs shows all routes"
    else:
        message = problem.description or problem.title or "bad request"
    return Failure(code, message, status=status if HTTP_ERRORS[code].status != status else 0)


def _on_http_status(_req: falcon.Request, resp: falcon.Response, problem: falcon.HTTPStatus, _params: object) -> None:
    resp.status = problem.status
    resp.set_headers(problem.headers or {})
    resp.text = problem.text


def install_error_handlers(app: falcon.App[Any, Any], formats: ErrorFormats = DEFAULT_FORMATS) -> None:
    """Make ``app`` answer every exception with an error body in the form of the request's API family."""

    def on_failure(req: falcon.Request, resp: falcon.Response, problem: LemonbusError, _params: object) -> None:
        write_error(req, resp, problem.failure, formats)

    def on_http_error(req: falcon.Request, resp: falcon.Response, problem: falcon.HTTPError, _params: object) -> None:
        if req.method not in falcon.COMBINED_METHODS:
            resp.set_header("Allow", "GET, HEAD, POST, DELETE, OPTIONS")
        write_error(req, resp, _http_failure(req, problem), formats)
        resp.set_headers(problem.headers or {})

    def on_unexpected_error(req: falcon.Request, resp: falcon.Response, problem: Exception, _params: object) -> None:
        if isinstance(problem, ConnectionError):
            # The client is gone; the server ends the connection.
            raise problem
        INTERNAL_ERRORS.log(problem, request_id=request_context(req.env).label, path=req.path)
        failure = Failure(Code.INTERNAL, "an internal error; find it in the log by this request id")
        write_error(req, resp, failure, formats)

    app.add_error_handler(Exception, on_unexpected_error)
    app.add_error_handler(falcon.HTTPError, on_http_error)
    app.add_error_handler(falcon.HTTPStatus, _on_http_status)
    app.add_error_handler(LemonbusError, on_failure)
