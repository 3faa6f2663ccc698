"""Reads and decodes whole request bodies within limits. Every mistake in a body is a 4xx with its position."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import falcon
import gevent
import msgspec

from gateway.fair_limiter import FairLimiter
from gateway.http.bodies import body_limits, null_fields
from gateway.http.bodies.body_errors import bad_json, is_unnamed_number, out_of_range_field, wrong_field
from gateway.http.bodies.nesting import MAX_NESTING, is_too_deep
from gateway.http.request_context import client_of, request_context
from protocol.failures import Code, Failure, invalid
from protocol.wire import form_data
from protocol.wire.form_data import FormPart

T = TypeVar("T")
_LARGE: Final = 256 * 1024
"""Size in bytes above which the process checks and decodes one body at a time."""
_PAUSE_S: Final = 0.001
_STEP_S: Final = 0.002
"""Seconds of work on a large body after which others run."""
_MOST_OF_LARGE: Final = {b"{": 250_000, b"[": 250_000, b":": 250_000, b",": 2_000_000}
"""Structural characters that a large body may have.

Each may become a Python object, which takes ten times as long as text.
"""
_TOO_DEEP: Final = Failure(Code.INVALID_JSON, f"the JSON is nested too deeply: the limit is {MAX_NESTING} levels")
_limiter: Final = FairLimiter(1, 1)
_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB]")
_FREE_TEXTS: Final = ("prompt", "negative_prompt")
"""Form fields that may be any text."""
_JSON_TYPES: Final = ("application/json", "application/x-www-form-urlencoded", "application/octet-stream")
"""Allowed content types of JSON. The second one is the default of ``curl -d``."""


def read_json(req: falcon.Request, limit: int) -> bytes:
    """Return the whole body of a route that takes JSON. Another content type or a compressed body is 415."""
    kind = (req.content_type or "application/json").partition(";")[0].strip().lower()
    if kind not in _JSON_TYPES and not kind.endswith("+json") and not kind.startswith("text/"):
        request_context(req.env).close_after()
        raise Failure(Code.MEDIA_TYPE, f"this route takes application/json, not {kind[:80]}").raised()
    if req.env.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        request_context(req.env).close_after()
        raise Failure(Code.MEDIA_TYPE, "compressed bodies are not supported").raised()
    return body_limits.read(req, limit)


def read_form(req: falcon.Request, limit: int) -> list[FormPart]:
    """Return the fields of a form with files, without null ones. A compressed form is 415.

    Browsers and Node.js write the text "null" for null.

    Raises ``invalid_request`` for an invalid form. It does the same (400) for another content type: such a body lacks
    the documented required fields.
    """
    kind = req.content_type or "nothing"
    if kind.partition(";")[0].strip().lower() != form_data.MEDIA_TYPE:
        request_context(req.env).close_after()
        raise invalid(f"this route takes {form_data.MEDIA_TYPE}, not {kind.partition(';')[0][:80]}")
    if req.env.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        request_context(req.env).close_after()
        raise Failure(Code.MEDIA_TYPE, "compressed bodies are not supported").raised()
    data = body_limits.read(req, limit)
    try:
        parts = form_data.parse(form_data.boundary_from_content_type(kind), data, lambda: gevent.sleep(0))
    except ValueError as problem:
        raise invalid(f"the form cannot be read: {problem}") from None
    return [part for part in parts if part.filename or part.data != b"null" or part.name in _FREE_TEXTS]


def read_optional_json(req: falcon.Request, limit: int) -> bytes:
    """Return the same, an empty object for a request without a body."""
    data = read_json(req, limit)
    return data if data.strip() else b"{}"


@lru_cache(maxsize=64)
def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls)


def read_object(req: falcon.Request, limit: int, cls: type[T]) -> tuple[T, bytes]:
    """Return the JSON body of a request as ``cls``, and in the form of :func:`decode_for_passing_on`.

    Raises like :func:`read_json` and :func:`decode`.
    """
    data = read_json(req, limit)
    return decode_for_passing_on(data, cls, client_of(req.env) if len(data) > _LARGE else "")


def decode(data: bytes, cls: type[T], client: str = "") -> T:
    """Return the JSON object in ``data`` as ``cls`` (a ``msgspec.Struct``). Unknown fields and null fields are ignored.

    ``client``: whose it is: clients take turns with large bodies.

    Raises ``invalid_json`` with line and column, or ``invalid_request`` naming the field in ``param``.
    """
    return decode_for_passing_on(data, cls, client)[0]


def decode_for_passing_on(data: bytes, cls: type[T], client: str = "") -> tuple[T, bytes]:
    """Return the same, and the JSON to pass on, without null fields."""
    if len(data) <= _LARGE:
        if is_too_deep(data):
            raise _TOO_DEEP.raised()
        return _decode(data, cls)
    # Nothing else in the process runs while msgspec decodes or a search goes on. So there is a pause after each step,
    # and one body at a time. A pause must be a timer: after sleep(0), gevent may go on without looking at sockets.
    with _limiter.turn(client):
        for character, most in _MOST_OF_LARGE.items():
            if data.count(character) > most:
                raise invalid(f"the body has more than {most} {character.decode()!r} characters in its JSON")
            gevent.sleep(_PAUSE_S)
        if is_too_deep(data):
            raise _TOO_DEEP.raised()
        gevent.sleep(_PAUSE_S)
        try:
            return _decode(data, cls)
        finally:
            gevent.sleep(_PAUSE_S)


def in_steps(size: int, env: dict[str, Any], work: Callable[[Callable[[], None]], T]) -> T:
    """Do work on a body of ``size`` bytes. ``work`` gets what it is to call between its steps. ``env`` is ``req.env``.

    Work on a large body waits for its client's turn, and others run between its steps.
    """
    if size <= _LARGE:
        return work(_go_on)
    with _limiter.turn(client_of(env)):
        try:
            return work(_Steps().pause)
        finally:
            gevent.sleep(_PAUSE_S)


def _go_on() -> None:
    """Do not pause: the body is not large."""


class _Steps:
    """Work on a large body, beginning with a pause."""

    def __init__(self) -> None:
        self._began = -math.inf

    def pause(self) -> None:
        """Let others run if the work has gone on for a while."""
        if time.monotonic() - self._began >= _STEP_S:
            gevent.sleep(_PAUSE_S)
            self._began = time.monotonic()


def pause(size: int) -> None:
    """Let others run, after a step over ``size`` bytes of a body, if these are many: nothing else runs during such a step."""
    if size > _LARGE:
        gevent.sleep(_PAUSE_S)


def _decode(data: bytes, cls: type[T]) -> tuple[T, bytes]:
    wanted: Any = cls
    try:
        data.decode()  # fields that a Struct ignores are not validated
        if _SURROGATE.search(data):
            _decoder(dict).decode(data)
        clean = null_fields.without_null_fields(data, cls)
        value: T = _decoder(wanted).decode(clean)
        return value, clean
    except msgspec.ValidationError as problem:
        text = str(problem)
        if is_unnamed_number(text):
            name = out_of_range_field(data) if len(data) <= _LARGE else ""
            what = f"`{name}`" if name else "a number in the body"
            raise invalid(f"{what} is out of range", name) from None
        raise wrong_field(text, cls) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise bad_json(data, problem) from None


def decode_object(data: bytes, client: str = "") -> dict[str, Any]:
    """Return the JSON object in ``data`` as a dictionary; raises like :func:`decode`."""
    return decode(data, dict, client)


def convert(value: dict[str, Any], cls: type[T], where: str = "", *, strict: bool = True) -> T:
    """Return a decoded JSON object as ``cls``. ``where``: its name in the body, such as ``input[0]``.

    ``strict``: texts are not accepted as numbers, unlike in a query.

    Raises ``invalid_request`` naming the field in ``param``.
    """
    try:
        return msgspec.convert(null_fields.without_nulls(value, cls), cls, strict=strict)
    except msgspec.ValidationError as problem:
        text = str(problem)
        # All values in a query are texts: that is not what is wrong.
        raise wrong_field(text if strict else text.replace(", got `str`", "", 1), cls, where) from None
