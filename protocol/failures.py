"""The one vocabulary of failures: what happened, to which model and request, and what to do.

Every process raises, sends and answers these; only the dialects of the gateway turn them into HTTP bodies.
Types and codes use mullama's words where it has one.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

import msgspec


class Code(enum.StrEnum):
    """What happened, one word each."""

    INVALID_REQUEST = "invalid_request"
    INVALID_JSON = "invalid_json"
    CONTEXT_EXCEEDED = "context_length_exceeded"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    MODEL_NOT_FOUND = "model_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_LOADED = "not_loaded"
    CONFLICT = "conflict"
    ALL_PINNED = "all_pinned"
    TOO_LARGE = "body_too_large"
    URI_TOO_LONG = "uri_too_long"
    HEADERS_TOO_LARGE = "headers_too_large"
    MEDIA_TYPE = "unsupported_media_type"
    UNSUPPORTED = "unsupported_operation"
    OVERLOADED = "overloaded"
    STARTING = "starting"
    DRAINING = "draining"
    LOAD_FAILED = "load_failed"
    BACKING_OFF = "backing_off"
    BREAKER_OPEN = "breaker_open"
    UNLOADED = "unloaded"
    DOWNLOAD_FAILED = "download_failed"
    OFFLINE = "offline"
    SPOOL_FULL = "spool_full"
    BACKEND_DIED = "backend_died"
    BACKEND_ERROR = "backend_error"
    HUNG = "backend_hung"
    LOST = "events_lost"
    RETURNED = "returned"
    WORKER_GONE = "worker_gone"
    SUPERVISOR_LOST = "supervisor_lost"
    GATEWAY_GONE = "gateway_gone"
    CANCELLED = "cancelled"
    CLIENT_TOO_SLOW = "client_too_slow"
    TIMEOUT = "timeout"
    INTERNAL = "internal_error"


class _Meaning(NamedTuple):
    status: int
    type: str


_CALLER = "invalid_request"
_BUSY = "overloaded"
_MODEL = "model_error"

MEANING: Final[dict[Code, _Meaning]] = {
    Code.INVALID_REQUEST: _Meaning(400, _CALLER),
    Code.INVALID_JSON: _Meaning(400, _CALLER),
    Code.CONTEXT_EXCEEDED: _Meaning(400, _CALLER),
    Code.UNAUTHORIZED: _Meaning(401, "unauthorized"),
    Code.FORBIDDEN: _Meaning(403, "forbidden"),
    Code.NOT_FOUND: _Meaning(404, "not_found"),
    Code.MODEL_NOT_FOUND: _Meaning(404, "not_found"),
    Code.METHOD_NOT_ALLOWED: _Meaning(405, _CALLER),
    Code.NOT_LOADED: _Meaning(404, "not_found"),
    Code.CONFLICT: _Meaning(409, "conflict"),
    Code.ALL_PINNED: _Meaning(409, "conflict"),
    Code.TOO_LARGE: _Meaning(413, _CALLER),
    Code.URI_TOO_LONG: _Meaning(414, _CALLER),
    Code.HEADERS_TOO_LARGE: _Meaning(431, _CALLER),
    Code.MEDIA_TYPE: _Meaning(415, _CALLER),
    Code.UNSUPPORTED: _Meaning(501, "unsupported_operation"),
    Code.OVERLOADED: _Meaning(503, _BUSY),
    Code.STARTING: _Meaning(503, _BUSY),
    Code.DRAINING: _Meaning(503, _BUSY),
    Code.LOAD_FAILED: _Meaning(503, _MODEL),
    Code.BACKING_OFF: _Meaning(503, _MODEL),
    Code.BREAKER_OPEN: _Meaning(503, _MODEL),
    Code.UNLOADED: _Meaning(503, _MODEL),
    Code.DOWNLOAD_FAILED: _Meaning(502, _MODEL),
    Code.OFFLINE: _Meaning(503, _MODEL),
    Code.SPOOL_FULL: _Meaning(503, _BUSY),
    Code.BACKEND_DIED: _Meaning(500, _MODEL),
    Code.BACKEND_ERROR: _Meaning(500, _MODEL),
    Code.HUNG: _Meaning(500, _MODEL),
    Code.LOST: _Meaning(500, "internal_error"),
    Code.RETURNED: _Meaning(503, _BUSY),
    Code.WORKER_GONE: _Meaning(500, _MODEL),
    Code.SUPERVISOR_LOST: _Meaning(503, _BUSY),
    Code.GATEWAY_GONE: _Meaning(499, _CALLER),
    Code.CANCELLED: _Meaning(499, _CALLER),
    Code.CLIENT_TOO_SLOW: _Meaning(499, _CALLER),
    Code.TIMEOUT: _Meaning(504, _BUSY),
    Code.INTERNAL: _Meaning(500, "internal_error"),
}

RETRIABLE: Final = frozenset({Code.BACKEND_DIED, Code.HUNG, Code.LOST, Code.RETURNED, Code.WORKER_GONE})
"""Ends of an attempt after which the gateway may try once more, if nothing was written yet."""


_QUOTE: Final = re.compile(r"""[:"{\[`\n]|'(?![a-z_]{1,40}')""")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure, as it travels on the bus.

    ``message`` is for the caller: no path of this machine, no engine output.  ``detail`` (last lines of an
    engine, a path) is for the log and for administrators.  ``retry_after`` is in seconds and only set where
    waiting cures.  ``status`` overrides the code's HTTP status (an engine's own 4xx).  ``quotes``: the message may have
    the caller's own words in it, which the log does not repeat.
    """

    code: Code
    message: str
    model: str = ""
    param: str = ""
    retry_after: float = 0.0
    detail: str = ""
    status: int = 0
    tokens_sent: int = 0
    quotes: bool = False

    @property
    def gist(self) -> str:
        """The message as far as the log may have it: up to where it may begin to quote."""
        return _QUOTE.split(self.message, maxsplit=1)[0].rstrip() if self.quotes else self.message

    @property
    def http_status(self) -> int:
        """The HTTP status that a dialect answers with."""
        return self.status or MEANING[self.code].status

    @property
    def type(self) -> str:
        """The coarse ``type`` of the error body."""
        return MEANING[self.code].type

    def raised(self) -> LemonbusError:
        """Return the exception that carries this failure."""
        return LemonbusError(self)


class LemonbusError(Exception):
    """Carries a :class:`Failure` up to the door that can answer with it."""

    def __init__(self, failure: Failure) -> None:
        """Keep the failure; its message is the exception's text."""
        super().__init__(failure.message)
        self.failure = failure


def invalid(message: str, param: str = "") -> LemonbusError:
    """Return the exception for something wrong in what the caller sent."""
    return Failure(Code.INVALID_REQUEST, message, param=param).raised()
