"""Translates an engine's error response into one of our failures. What its messages mean, its recipe declares. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure
from workers.backends.error_texts import ErrorTexts, shorten_advice, without_key
from workers.stream.answer_forms import is_error_body

BUSY_RETRY_AFTER_S: Final = 2.0
_PATH: Final = re.compile(r"(?<![\w/])/(?:[^\s/'\":,]+/)+[^\s'\":,]*")
_MAX_MESSAGE_LENGTH: Final = 500
"""Characters; an engine may repeat the whole request."""
_CODES: Final = {
    401: Code.UNAUTHORIZED,
    404: Code.NOT_FOUND,
    413: Code.TOO_LARGE,
    429: Code.RATE_LIMITED,
}
"""Status → code, unless the request is simply wrong."""


class ErrorSource(Protocol):
    """The engine that answered; see :class:`~workers.backends.base.Backend`."""

    @property
    def program(self) -> str:
        """Its name in messages."""

    @property
    def most_context(self) -> int:
        """Tokens that a request may use at most, however the model is loaded; 0 if unknown."""

    @property
    def key(self) -> str:
        """The key that requests to it have; empty: none."""

    @property
    def error_texts(self) -> ErrorTexts:
        """What its messages mean."""


class _EngineError(msgspec.Struct):
    message: str = ""
    type: str | None = ""
    code: int | str | None = 0


class _EngineErrorBody(msgspec.Struct):
    """An error in one of the forms that servers use: ``error``, or the error itself, or ``detail``."""

    error: _EngineError | str | None = None
    message: str = ""
    type: str | None = ""
    code: int | str | None = 0
    detail: Any = ""

    def found(self) -> _EngineError:
        """Return the error, whatever its form."""
        if isinstance(self.error, _EngineError):
            return self.error
        detail = self.detail if isinstance(self.detail, str) else msgspec.json.encode(self.detail).decode()
        return _EngineError(self.error or self.message or detail, self.type, self.code)


_error_body = msgspec.json.Decoder(_EngineErrorBody).decode


def failure_in_body(body: bytes, engine: ErrorSource) -> Failure | None:
    """Return the failure in a response with status 200, None if there is none."""
    return failure_of_response(500, body, engine) if is_error_body(body) else None


def failure_of_response(status: int, body: bytes, engine: ErrorSource, retry_after: float = 0.0) -> Failure:
    """Return the failure for an engine's error response. Anything that looks like a path is removed from its message.

    ``retry_after``: seconds after which the engine asks for another try; 0: it does not say.
    """
    program, texts = engine.program, engine.error_texts
    try:
        error = _error_body(without_key(body, engine.key)).found()
    except DECODE_ERRORS:
        error = _EngineError(message=f"{program} answered with status {status}")
    message = _PATH.sub("…", error.message) or f"{program} answered with status {status}"
    status = error.code if isinstance(error.code, int) and 400 <= error.code < 600 else status
    if texts.too_long.search(message) or (error.type and error.type == texts.too_long_type):
        return Failure(Code.CONTEXT_EXCEEDED, _too_long(message, texts, engine.most_context), status=400)
    if texts.busy.search(message) or status == texts.busy_status or (status == 503 and retry_after):
        return Failure(Code.OVERLOADED, f"{program}: {message}", retry_after=retry_after or BUSY_RETRY_AFTER_S)
    if status == 501:
        return Failure(Code.UNSUPPORTED, message)
    if meaning := next((meaning for part, meaning in texts.unclear.items() if part in message), ""):
        return Failure(Code.INVALID_REQUEST, meaning)
    if status >= 500 and texts.caller_mistake.search(message):
        return _refused(Code.INVALID_REQUEST, message, texts)
    if status >= 500:
        return Failure(Code.BACKEND_ERROR, f"{program}: {message}")
    failure = _refused(_CODES.get(status, Code.INVALID_REQUEST), message, texts, status)
    return msgspec.structs.replace(failure, retry_after=retry_after) if status == 429 else failure


def _too_long(message: str, texts: ErrorTexts, most: int) -> str:
    counts = texts.token_counts.search(message)
    if counts is None:
        what, can_grow = "is longer than the model's context", True
    else:
        tokens, context = counts.groups()
        what = f"has {tokens} tokens, more than the model's context of {context}"
        can_grow = not most or int(context) < most
    return f"the input {what}: {shorten_advice(most, can_grow=can_grow)}"


def _refused(code: Code, message: str, texts: ErrorTexts, status: int = 0) -> Failure:
    """Return the failure for a request that the engine refused, without the parts about the engine's own code."""
    message = texts.internals.sub("", message)
    field = texts.field.match(message)
    param = field.group(1) if field else ""
    if field:
        message = f"`{param}`: {message[field.end() :]}"
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = message[:_MAX_MESSAGE_LENGTH] + "…"
    return Failure(code, message, param=param, status=status, quotes=True)
