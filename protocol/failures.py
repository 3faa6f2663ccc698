"""The vocabulary of failures: what happened, to which model and request, and what to do.

Every process raises, sends and answers these; only the dialects of the gateway turn them into HTTP bodies.
Types and codes are mullama's where it has one.
"""

from __future__ import annotations

import enum
import errno
import re
from typing import Final, NamedTuple

import msgspec

from protocol.times import Seconds

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions from decoding bytes of other processes or files: wrong structure, invalid UTF-8, or nesting too deep."""

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of the operating system that are fixed by free space or inodes, including the user's quota."""


class Code(enum.StrEnum):
    """What happened: the values of ``code`` in error bodies and in the log."""

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
    RATE_LIMITED = "rate_limit_exceeded"
    QUOTA = "insufficient_quota"
    OVERLOADED = "overloaded"
    BATCH_WAITS = "batch_waits"
    """A request of a batch has to wait: other requests need the model, or others that were just used would have to leave for it."""
    STARTING = "starting"
    DRAINING = "draining"
    DRAINED = "drained"
    LOAD_FAILED = "load_failed"
    MODEL_UNUSABLE = "model_unusable"
    BACKING_OFF = "backing_off"
    BREAKER_OPEN = "breaker_open"
    RESTART_NEEDED = "restart_needed"
    UNLOADED = "unloaded"
    DOWNLOAD_FAILED = "download_failed"
    DOWNLOAD_PAUSED = "download_paused"
    CHECKPOINT_NOT_FOUND = "checkpoint_not_found"
    CHECKPOINT_FORBIDDEN = "checkpoint_forbidden"
    BACKEND_NOT_INSTALLED = "backend_not_installed"
    OFFLINE = "offline"
    SPOOL_FULL = "spool_full"
    LOOP_DETECTED = "loop_detected"
    BACKEND_DIED = "backend_died"
    BACKEND_ERROR = "backend_error"
    HUNG = "backend_hung"
    CONNECTION_LOST = "backend_connection_lost"
    OUT_OF_MEMORY = "out_of_memory"
    INSUFFICIENT_MEMORY = "insufficient_memory"
    INSUFFICIENT_STORAGE = "insufficient_storage"
    NO_NODE = "no_suitable_node"
    LOST = "events_lost"
    RETURNED = "returned"
    WORKER_GONE = "worker_gone"
    NODE_LOST = "node_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    OUTCOME_UNKNOWN = "outcome_unknown"
    GATEWAY_GONE = "gateway_gone"
    CANCELLED = "cancelled"
    OPERATOR_CANCELLED = "cancelled_by_operator"
    CLIENT_TOO_SLOW = "client_too_slow"
    TIMEOUT = "timeout"
    INTERNAL = "internal_error"


class _HttpError(NamedTuple):
    status: int
    type: str


_CALLER = "invalid_request"
_BUSY = "overloaded"
_MODEL = "model_error"

HTTP_ERRORS: Final[dict[Code, _HttpError]] = {
    Code.INVALID_REQUEST: _HttpError(400, _CALLER),
    Code.INVALID_JSON: _HttpError(400, _CALLER),
    Code.CONTEXT_EXCEEDED: _HttpError(400, _CALLER),
    Code.UNAUTHORIZED: _HttpError(401, "unauthorized"),
    Code.FORBIDDEN: _HttpError(403, "forbidden"),
    Code.NOT_FOUND: _HttpError(404, "not_found"),
    Code.MODEL_NOT_FOUND: _HttpError(404, "not_found"),
    Code.METHOD_NOT_ALLOWED: _HttpError(405, _CALLER),
    Code.NOT_LOADED: _HttpError(404, "not_found"),
    Code.CONFLICT: _HttpError(409, "conflict"),
    Code.ALL_PINNED: _HttpError(409, "conflict"),
    Code.TOO_LARGE: _HttpError(413, _CALLER),
    Code.URI_TOO_LONG: _HttpError(414, _CALLER),
    Code.HEADERS_TOO_LARGE: _HttpError(431, _CALLER),
    Code.MEDIA_TYPE: _HttpError(415, _CALLER),
    Code.UNSUPPORTED: _HttpError(501, "unsupported_operation"),
    Code.RATE_LIMITED: _HttpError(429, "rate_limit_error"),
    Code.QUOTA: _HttpError(429, "insufficient_quota"),
    Code.OVERLOADED: _HttpError(503, _BUSY),
    Code.BATCH_WAITS: _HttpError(503, _BUSY),
    Code.STARTING: _HttpError(503, _BUSY),
    Code.DRAINING: _HttpError(503, _BUSY),
    Code.DRAINED: _HttpError(503, _BUSY),
    Code.LOAD_FAILED: _HttpError(503, _MODEL),
    Code.MODEL_UNUSABLE: _HttpError(500, _MODEL),
    Code.BACKING_OFF: _HttpError(503, _MODEL),
    Code.BREAKER_OPEN: _HttpError(503, _MODEL),
    Code.RESTART_NEEDED: _HttpError(503, _MODEL),
    Code.UNLOADED: _HttpError(503, _MODEL),
    Code.DOWNLOAD_FAILED: _HttpError(502, _MODEL),
    Code.DOWNLOAD_PAUSED: _HttpError(503, _MODEL),
    Code.CHECKPOINT_NOT_FOUND: _HttpError(404, "not_found"),
    Code.CHECKPOINT_FORBIDDEN: _HttpError(403, _MODEL),
    Code.BACKEND_NOT_INSTALLED: _HttpError(409, "conflict"),
    Code.OFFLINE: _HttpError(503, _MODEL),
    Code.SPOOL_FULL: _HttpError(503, _BUSY),
    Code.LOOP_DETECTED: _HttpError(508, _MODEL),
    Code.BACKEND_DIED: _HttpError(500, _MODEL),
    Code.BACKEND_ERROR: _HttpError(500, _MODEL),
    Code.HUNG: _HttpError(500, _MODEL),
    Code.CONNECTION_LOST: _HttpError(500, _MODEL),
    Code.OUT_OF_MEMORY: _HttpError(500, _MODEL),
    Code.INSUFFICIENT_MEMORY: _HttpError(507, _MODEL),
    Code.INSUFFICIENT_STORAGE: _HttpError(507, _MODEL),
    Code.NO_NODE: _HttpError(503, _MODEL),
    Code.LOST: _HttpError(500, "internal_error"),
    Code.RETURNED: _HttpError(503, _BUSY),
    Code.WORKER_GONE: _HttpError(500, _MODEL),
    Code.NODE_LOST: _HttpError(500, _MODEL),
    Code.SUPERVISOR_LOST: _HttpError(503, _BUSY),
    Code.OUTCOME_UNKNOWN: _HttpError(503, _BUSY),
    Code.GATEWAY_GONE: _HttpError(499, _CALLER),
    Code.CANCELLED: _HttpError(499, _CALLER),
    Code.OPERATOR_CANCELLED: _HttpError(499, "cancelled"),
    Code.CLIENT_TOO_SLOW: _HttpError(499, _CALLER),
    Code.TIMEOUT: _HttpError(504, _BUSY),
    Code.INTERNAL: _HttpError(500, "internal_error"),
}

RETRIABLE: Final = frozenset(
    {
        Code.BACKEND_DIED,
        Code.HUNG,
        Code.CONNECTION_LOST,
        Code.OUT_OF_MEMORY,
        Code.LOST,
        Code.RETURNED,
        Code.WORKER_GONE,
        Code.NODE_LOST,
    }
)
"""Failures of an attempt after which the gateway may try once more, if nothing was written yet."""

DOWNLOAD_FAILURES: Final = frozenset(
    {Code.DOWNLOAD_FAILED, Code.INSUFFICIENT_STORAGE, Code.CHECKPOINT_NOT_FOUND, Code.CHECKPOINT_FORBIDDEN}
)
"""Failures of a download that had begun."""

CLIENT_LEFT_CODES: Final = frozenset({Code.CANCELLED, Code.CLIENT_TOO_SLOW})
"""Failures after which there is no client to write to."""

_FINAL: Final = frozenset(
    {
        Code.LOOP_DETECTED,
        Code.UNSUPPORTED,
        Code.OFFLINE,
        Code.DOWNLOAD_PAUSED,
        Code.MODEL_UNUSABLE,
        Code.CHECKPOINT_FORBIDDEN,
        Code.INSUFFICIENT_MEMORY,
        Code.OPERATOR_CANCELLED,
    }
)
"""Failures that repeating the request does not change, although their status is 5xx or 499.

A list of variants answers ``CHECKPOINT_FORBIDDEN`` with 500; elsewhere it is 403.
"""
_TEMPORARY_STATUSES: Final = frozenset({408, 425, 429, 499})
"""4xx statuses that do not mean that the request itself is wrong."""


_QUOTE_START: Final = re.compile(r"""[:"{\[`\n]|'(?![a-z_]{1,40}')""")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure, as it travels on the bus.

    ``message`` is for the caller: it has no path of this machine and no engine output. ``detail`` (last lines of an
    engine, a path) is for the log and for administrators. ``retry_after`` is only set where waiting helps. ``status`` overrides the
    code's HTTP status (an engine's own 4xx). ``quotes``: the message may quote the caller, which the log does not repeat.
    ``by_request``: an engine probably died of this request, so it is not repeated.
    """

    code: Code
    message: str
    model: str = ""
    param: str = ""
    retry_after: Seconds = 0.0
    detail: str = ""
    status: int = 0
    tokens_sent: int = 0
    quotes: bool = False
    by_request: bool = False

    @property
    def loggable_message(self) -> str:
        """The part of the message that the log may have: up to where it may begin to quote the caller."""
        return _QUOTE_START.split(self.message, maxsplit=1)[0].rstrip() if self.quotes else self.message

    @property
    def http_status(self) -> int:
        """The HTTP status of the answer."""
        return self.status or HTTP_ERRORS[self.code].status

    @property
    def final(self) -> bool:
        """Whether repeating the same request is useless, unless something else changes."""
        wrong = 400 <= self.http_status < 500 and self.http_status not in _TEMPORARY_STATUSES
        return not self.retry_after and (wrong or self.by_request or self.code in _FINAL)

    @property
    def type(self) -> str:
        """The coarse ``type`` of the error body."""
        return HTTP_ERRORS[self.code].type

    def raised(self) -> LemonbusError:
        """Return the exception that carries this failure."""
        return LemonbusError(self)


SERVER_DRAINED: Final = Failure(
    Code.DRAINED,
    "an operator has drained this server, so it takes no new requests; ask another server, or try again later",
    retry_after=10,
)
"""Why new requests are refused while the server is drained."""


def failure_of_configuration(failure: Failure, model: str, *, temporary: bool = False) -> Failure:
    """Return a failed load's failure for requests: they did not choose its options, so wrong options are not their error.

    ``temporary``: a call asked for the options, and the next load does not use them.
    """
    if failure.code is not Code.INVALID_REQUEST:
        return failure
    code = Code.LOAD_FAILED if temporary else Code.MODEL_UNUSABLE
    origin = "the options that a load asked for" if temporary else "its options in the server's configuration"
    return Failure(
        code, f"{model} cannot be loaded with {origin}: {failure.message}", model=model, detail=failure.detail
    )


class LemonbusError(Exception):
    """Carries a :class:`Failure` to the code that answers with it."""

    def __init__(self, failure: Failure) -> None:
        """Keep the failure; its message is the exception's text."""
        super().__init__(failure.message)
        self.failure = failure


def invalid(message: str, param: str = "") -> LemonbusError:
    """Return the exception for something wrong in what the caller sent."""
    return Failure(Code.INVALID_REQUEST, message, param=param).raised()


def write_failure(problem: OSError, message: str, model: str = "") -> Failure:
    """Return the failure of a request that could not change a file: ``insufficient_storage`` if the disk is full."""
    code = Code.INSUFFICIENT_STORAGE if problem.errno in NO_SPACE else Code.INTERNAL
    return Failure(code, message, model=model, detail=str(problem))


def not_understood(problem: Exception | str, model: str = "") -> LemonbusError:
    """Return the exception for an engine's answer that does not have its form. ``problem``: what is wrong with it."""
    message = "the engine's answer was not understood"
    return Failure(Code.BACKEND_ERROR, message, model=model, detail=str(problem)).raised()


def printable(text: str, most: int = 96) -> str:
    """Return the caller's text for a message: cut, and without lone surrogates."""
    shown = text[:most].encode("utf-8", "replace").decode()
    return shown + "…" if len(text) > most else shown
