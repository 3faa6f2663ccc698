"""Reads and decodes request bodies: bounded, and every mistake in them is a 4xx that says where it is."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeVar

import falcon
import gevent
import msgspec
from gunicorn.http.errors import NoMoreData, ParseException

from gateway.http import error_messages
from gateway.http.gunicorn_parser import BodyTooLargeError
from gateway.http.hangup import CLIENT_LEFT
from gateway.http.request_context import request_context
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.wire import form_data
from protocol.wire.form_data import FormPart

T = TypeVar("T")
_STEP: Final = 1024
"""Bytes of a chunked body after which the others of the process have their turn: they may be as many chunks."""
READ_TIMEOUT_S: Final = 60.0
"""Seconds that any body may take, and for which nothing of one may come."""
_MIN_BYTES_PER_SECOND: Final = 16 * 1024
"""Bytes a second that give a large one more."""
_MAX_MESSAGE_LENGTH: Final = 200
_readers: set[Any] = set()
"""Greenlets that wait for a body."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB]")
_AT_BYTE: Final = re.compile(r" ?\(byte (\d+)\)")
_AT_FIELD: Final = re.compile(r" - at `(?:key in )?\$?\.?([^`]*)`$")
_JSON_TYPES: Final = ("application/json", "application/x-www-form-urlencoded", "application/octet-stream")
"""What JSON may be sent as; the second one is what ``curl -d`` says unless told otherwise."""


def read(req: falcon.Request, limit: int) -> bytes:
    """Return the whole body.

    Raises ``body_too_large`` (413) as soon as more than ``limit`` bytes are announced, by its length or by its chunks,
    or have come.  408 if nothing comes for :data:`READ_TIMEOUT_S` or not all of it in time: a connection must not be held
    for ever by a client that is gone without a word.  ``400`` for broken chunks, ``cancelled`` if the client leaves in
    the middle of it.
    """
    length = req.content_length
    if length is not None and length > limit:
        raise _too_large(req, limit)
    source = req.env["wsgi.input"]
    if length is not None and getattr(source, "here", False):
        whole: bytes = source.read(length)
        return whole
    reader = gevent.getcurrent()
    _readers.add(reader)
    client_socket = req.env.get("gunicorn.socket")
    if client_socket is not None:
        client_socket.set_read_timeout(READ_TIMEOUT_S)
    timeout = gevent.Timeout.start_new(READ_TIMEOUT_S + (limit if length is None else length) / _MIN_BYTES_PER_SECOND)
    try:
        return _read(req, length, limit)
    except gevent.Timeout as late:
        if late is not timeout:
            raise
        raise _timed_out(req) from None
    finally:
        _readers.discard(reader)
        timeout.close()
        if client_socket is not None:
            client_socket.set_read_timeout(None)


def abort_waiting_reads(failure: Failure) -> None:
    """Tell all whose bodies have not come whole that nobody will have them (in the hub)."""
    for reader in list(_readers):
        reader.throw(failure.raised())


def _read(req: falcon.Request, length: int | None, limit: int) -> bytes:
    source = req.env["wsgi.input"]
    try:
        if length is not None:
            return _read_whole(source, length)
        if req.env.get("HTTP_TRANSFER_ENCODING") is None:
            return b""
        return _read_chunks(req, source, limit)
    except BodyTooLargeError:
        raise _too_large(req, limit) from None
    except (NoMoreData, ParseException) as problem:
        client_socket = req.env.get("gunicorn.socket")
        if client_socket is not None and client_socket.stalled:
            raise _timed_out(req) from None
        if isinstance(problem, NoMoreData):
            raise Failure(Code.CANCELLED, CLIENT_LEFT).raised() from None
        request_context(req.env).close_after()
        raise invalid(
            f"the body's framing is broken: {error_messages.describe_parse_error(problem)[:_MAX_MESSAGE_LENGTH]}"
        ) from None


def _read_whole(source: Any, length: int) -> bytes:
    data: bytes = source.read(length)
    if len(data) < length:
        raise NoMoreData
    return data


def _read_chunks(req: falcon.Request, source: Any, limit: int) -> bytes:
    source.reader.limit = limit
    pieces = []
    size = 0
    while piece := source.read(_STEP):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(req, limit)
        gevent.sleep(0)
    return b"".join(pieces)


def _timed_out(req: falcon.Request) -> LemonbusError:
    request_context(req.env).close_after()
    return Failure(Code.TIMEOUT, "the body did not come in time", status=408).raised()


def _too_large(req: falcon.Request, limit: int) -> LemonbusError:
    # What was not read must not be taken for the next request.
    request_context(req.env).close_after()
    return Failure(Code.TOO_LARGE, f"the body is larger than {limit} bytes").raised()


def read_json(req: falcon.Request, limit: int) -> bytes:
    """Return the whole body of a route that takes JSON; another content type or a compressed one is 415."""
    kind = (req.content_type or "application/json").partition(";")[0].strip().lower()
    if kind not in _JSON_TYPES and not kind.endswith("+json") and not kind.startswith("text/"):
        request_context(req.env).close_after()
        raise Failure(Code.MEDIA_TYPE, f"this route takes application/json, not {kind[:80]}").raised()
    if req.env.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        request_context(req.env).close_after()
        raise Failure(Code.MEDIA_TYPE, "compressed bodies are not supported").raised()
    return read(req, limit)


def read_form(req: falcon.Request, limit: int) -> list[FormPart]:
    """Return the fields of a route that takes a form with files; another content type or a compressed one is 415.

    Raises ``invalid_request`` for what is no whole form.
    """
    kind = req.content_type or "nothing"
    if kind.partition(";")[0].strip().lower() != form_data.MEDIA_TYPE:
        request_context(req.env).close_after()
        raise Failure(
            Code.MEDIA_TYPE, f"this route takes {form_data.MEDIA_TYPE}, not {kind.partition(';')[0][:80]}"
        ).raised()
    if req.env.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        request_context(req.env).close_after()
        raise Failure(Code.MEDIA_TYPE, "compressed bodies are not supported").raised()
    data = read(req, limit)
    try:
        return form_data.parse(form_data.boundary_from_content_type(kind), data, lambda: gevent.sleep(0))
    except ValueError as problem:
        raise invalid(f"the form cannot be read: {problem}") from None


@lru_cache(maxsize=64)
def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls)


def decode(data: bytes, cls: type[T]) -> T:
    """Return the JSON object in ``data`` as ``cls`` (a ``msgspec.Struct``; unknown fields are passed over).

    Raises ``invalid_json`` with line and column, or ``invalid_request`` naming the field in ``param``.
    """
    wanted: Any = cls
    try:
        value: T = _decoder(wanted).decode(data)
        data.decode()  # what a Struct passes over was not looked at
        if _SURROGATE.search(data):
            _decoder(dict).decode(data)
        return value
    except msgspec.ValidationError as problem:
        raise _wrong_field(str(problem)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise _bad_json(data, problem) from None
    except RecursionError:
        raise Failure(Code.INVALID_JSON, "the JSON is nested too deeply").raised() from None


def decode_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in ``data`` as a dictionary; raises like :func:`decode`."""
    return decode(data, dict)


def _wrong_field(text: str) -> LemonbusError:
    field = _AT_FIELD.search(text)
    if field is None:
        missing = re.search(r"missing required field `([^`]+)`", text)
        name = missing.group(1) if missing else ""
        message = (
            f"`{name}` is required"
            if missing
            else f"the body must be a JSON object: {error_messages.describe_type_error(text)}"
        )
        return invalid(message, name)
    name = field.group(1)
    missing = re.search(r"missing required field `([^`]+)`", text)
    if missing:
        name = f"{name}.{missing.group(1)}"
        return invalid(f"`{name}` is required", name)
    return invalid(f"`{name}`: {error_messages.describe_type_error(text[: field.start()])}", name)


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        return problem.start
    return len(data)


def _bad_json(data: bytes, problem: Exception) -> LemonbusError:
    if isinstance(problem, UnicodeDecodeError):
        # msgspec counts from the start of the string, we from the start of the body.
        position, what = _first_bad_byte(data), "invalid UTF-8"
    else:
        text = str(problem)
        at = _AT_BYTE.search(text)
        position = int(at.group(1)) if at else len(data)
        what = _AT_BYTE.sub("", text).removeprefix("JSON is malformed: ").rstrip(".")
        what = what[:1].lower() + what[1:]
    before = data[:position]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
    return Failure(Code.INVALID_JSON, f"bad JSON at line {line} column {column}: {what}").raised()
