"""Reads a request's whole body within its limits: bytes, seconds, and the memory that all bodies of a process share."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, Final

import falcon
import gevent

from gateway.http.bodies.body_framing import ChunkedBody, ConnectionEndedError, SizedBody
from gateway.http.body_memory import OVERLOADED, BodyMemory, HeldBody
from gateway.http.client_disconnect import CLIENT_LEFT
from gateway.http.request_context import MEMORY_KEY, SOCKET_KEY, request_context
from protocol.failures import Code, Failure, LemonbusError

IDLE_TIMEOUT_S: Final = 60.0
"""Seconds after which a body is given up if nothing more of it arrives, and which any body may take."""
MIN_BYTES_PER_SECOND: Final = 64 * 1024
"""A body may take one more second for each time that this many bytes have arrived."""
_MOST_OF_KEY: Final = 0.5
"""The part of a process's memory for bodies that those of one key may have: they stay until their requests are answered."""
_STEP: Final = 128 * 1024
"""Bytes of a body that are read before other greenlets run."""


def read(req: falcon.Request, limit: int) -> bytes:
    """Return the whole body.

    Raises ``body_too_large`` (413) as soon as the length or the chunks announce more than ``limit`` bytes; ``timeout``
    (408) if nothing arrives for :data:`IDLE_TIMEOUT_S` or the body is too slow; ``overloaded`` (503) if the process
    holds too many bodies; ``invalid_request`` for broken chunks; ``cancelled`` if the client leaves.
    """
    length = req.content_length
    try:
        if length is not None and length > limit:
            raise Failure(Code.TOO_LARGE, f"the body is larger than {limit} bytes").raised()
        source: SizedBody | ChunkedBody = req.env["wsgi.input"]
        if length is not None and getattr(source, "received", False):
            count(req.env, length)
            return source.read()
        if length is None and req.env.get("HTTP_TRANSFER_ENCODING") is None:
            return b""
        memory: BodyMemory | None = req.env.get(MEMORY_KEY)
        if memory is None:
            return b"".join(_pieces(req, source, limit, counted=True))
        body, reader = _held_body(req.env), gevent.getcurrent()
        memory.begin(body, lambda failure: gevent.get_hub().loop.run_callback(_abort, body, reader, failure))
        try:
            whole = b"".join(_pieces(req, source, limit, counted=True))
        finally:
            memory.end(body)
        if body.given_up:
            raise OVERLOADED.raised()
        return whole
    except LemonbusError:
        # The rest of the body must not be mistaken for the next request.
        request_context(req.env).close_after()
        raise


def _abort(body: HeldBody, reader: Any, failure: Failure) -> None:
    if body.abort is not None:  # otherwise its reader does something else by now
        reader.throw(failure.raised())


def read_pieces(req: falcon.Request, limit: int) -> Generator[bytes]:
    """Yield the body piece by piece; nothing holds all of it. Raises as :func:`read` does.

    If it is closed before its end, the connection is closed after the answer.
    """
    length = req.content_length
    whole = False
    try:
        if length is not None and length > limit:
            raise Failure(Code.TOO_LARGE, f"the body is larger than {limit} bytes").raised()
        if length is not None or req.env.get("HTTP_TRANSFER_ENCODING") is not None:
            yield from _pieces(req, req.env["wsgi.input"], limit, counted=False)
        whole = True
    finally:
        if not whole:
            # The rest of the body must not be mistaken for the next request.
            request_context(req.env).close_after()


def _pieces(req: falcon.Request, source: Any, limit: int, *, counted: bool) -> Iterator[bytes]:
    """``counted``: whether all of it will be in memory."""
    client_socket = req.env.get(SOCKET_KEY)
    if isinstance(source, ChunkedBody):
        source.limit = limit
    size = 0
    started = time.monotonic()
    try:
        while True:
            if client_socket is not None:
                most = started + IDLE_TIMEOUT_S + size / MIN_BYTES_PER_SECOND
                client_socket.set_read_deadline(min(most, time.monotonic() + IDLE_TIMEOUT_S))
            piece = source.read(_STEP)
            if not piece:
                return
            size += len(piece)
            if counted:
                count(req.env, len(piece))
            yield piece
            gevent.sleep(0)
    except ConnectionEndedError:
        if client_socket is not None and client_socket.timed_out:
            raise Failure(Code.TIMEOUT, "the body did not arrive in time", status=408).raised() from None
        raise Failure(Code.CANCELLED, CLIENT_LEFT).raised() from None
    finally:
        if client_socket is not None:
            client_socket.set_read_deadline(None)


def count(env: dict[str, Any], size: int) -> None:
    """Count a request's received bytes against the limit of the process, until the request is answered.

    Raises ``overloaded`` (503).
    """
    memory: BodyMemory | None = env.get(MEMORY_KEY)
    if memory is not None:
        memory.reserve(_held_body(env), size)


def _held_body(env: dict[str, Any]) -> HeldBody:
    """Return the request's share of the memory."""
    context = request_context(env)
    if context.held_body is None:
        context.held_body = new_held_body(env)
    return context.held_body


def new_held_body(env: dict[str, Any]) -> HeldBody:
    """Return a body of a request's client that has no bytes yet."""
    key = request_context(env).api_key
    return HeldBody(env.get("REMOTE_ADDR", "")) if key is None else HeldBody(key.name, _MOST_OF_KEY)
