"""Translates an engine's error response into one of our failures. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.wire.decoding import DECODE_ERRORS
from workers.backends.base import shorten_advice

BUSY_RETRY_AFTER_S: Final = 2.0
_PATH: Final = re.compile(r"(?<![\w/])/(?:[^\s/'\":,]+/)+[^\s'\":,]*")
_CALLER_MISTAKE: Final = re.compile(
    r"^(Failed to parse|Failed to load image|Unknown reasoning format|Cannot use )|\[json\.exception\.|[Jj]inja"
)
"""Messages with which llama-server answers 500 although the request was wrong."""
_TOO_LONG: Final = re.compile(r"is too large to process|^Max length reached")
_OUT_OF_RANGE: Final = "_M_range_check"
"""A part of the C++ library's message when llama-server looks up a token that its vocabulary does not have."""
_TOKEN_COUNTS: Final = re.compile(r"\((\d+) tokens\)\D*(\d+)")
_ENGINE_INTERNALS: Final = re.compile(
    r"\[json\.exception\.[\w.]+\] ?"
    r"|^Unable to generate parser for this template\. Automatic parser generation failed: "
    r"|^Failed to initialize samplers: "
)
"""Parts of llama-server's messages that describe its own code, not the request."""
_FIELD: Final = re.compile(r"^Field '([\w.]{1,80})': ")
_MAX_MESSAGE_LENGTH: Final = 500
"""Characters; an engine may repeat the whole request."""
_BUSY: Final = re.compile(r"NPU is in use")
"""The engine's queue is full although this worker sends one request at a time: another program also uses it."""
_ERROR_BODY: Final = re.compile(rb'\s*\{\s*"error"\s*:')


class _EngineError(msgspec.Struct):
    message: str = ""
    type: str = ""
    code: int = 0


class _EngineErrorBody(msgspec.Struct):
    error: _EngineError | str


_error_body = msgspec.json.Decoder(_EngineErrorBody).decode


def failure_in_body(body: bytes, program: str, most_context: int = 0) -> Failure | None:
    """Return the failure in a response with status 200, None if there is none: some engines report errors this way."""
    return failure_of_response(500, body, program, most_context) if _ERROR_BODY.match(body) else None


def failure_of_response(status: int, body: bytes, program: str, most_context: int = 0) -> Failure:
    """Return the failure for an engine's error response. Anything that looks like a path is removed from its message.

    ``most_context``: the most tokens that the model's context can have; 0 if unknown.
    """
    try:
        decoded = _error_body(body).error
        error = _EngineError(decoded) if isinstance(decoded, str) else decoded
    except DECODE_ERRORS:
        error = _EngineError(message=f"{program} answered with status {status}")
    message = _PATH.sub("…", error.message) or f"{program} answered with status {status}"
    status = error.code if 400 <= error.code < 600 else status
    if error.type == "exceed_context_size_error" or _TOO_LONG.search(message):
        return Failure(Code.CONTEXT_EXCEEDED, _too_long(message, most_context), status=400)
    if _BUSY.match(message):
        return Failure(Code.OVERLOADED, f"{program}: {message}", retry_after=BUSY_RETRY_AFTER_S)
    if status == 501:
        return Failure(Code.UNSUPPORTED, message)
    if _OUT_OF_RANGE in message:
        return Failure(Code.INVALID_REQUEST, "a token number is not in the model's vocabulary")
    if "input is not supported" in message:  # llama-server's 500 for an image sent to a model that reads only text
        return Failure(Code.INVALID_REQUEST, message.partition(" - hint")[0])
    if status >= 500 and _CALLER_MISTAKE.search(message):
        return _refused(Code.INVALID_REQUEST, message.partition("; tools = ")[0])
    if status >= 500:
        return Failure(Code.BACKEND_ERROR, f"{program}: {message}")
    code = {401: Code.UNAUTHORIZED, 404: Code.NOT_FOUND, 413: Code.TOO_LARGE}.get(status, Code.INVALID_REQUEST)
    return _refused(code, message, status)


def _too_long(message: str, most: int) -> str:
    counts = _TOKEN_COUNTS.search(message)
    if counts is None:
        what, can_grow = "is longer than the model's context", True
    else:
        tokens, context = counts.groups()
        what = f"has {tokens} tokens, more than the model's context of {context}"
        can_grow = not most or int(context) < most
    return f"the input {what}: {shorten_advice(most, can_grow=can_grow)}"


def _refused(code: Code, message: str, status: int = 0) -> Failure:
    """Return the failure for a request that the engine refused, without the parts about the engine's own code."""
    message = _ENGINE_INTERNALS.sub("", message)
    field = _FIELD.match(message)
    param = field.group(1) if field else ""
    if field:
        message = f"`{param}`: {message[field.end() :]}"
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = message[:_MAX_MESSAGE_LENGTH] + "…"
    return Failure(code, message, param=param, status=status, quotes=True)
