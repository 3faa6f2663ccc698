"""One client's connection: reads its requests one after the other, answers each and writes its log line."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import gevent

from gateway.http import errors
from gateway.http.body_memory import BodyMemory
from gateway.http.client_disconnect import CLIENT_LEFT
from gateway.http.connections import access_log, request_parser, wsgi_environ
from gateway.http.connections.client_socket import ClientSocket
from gateway.http.connections.request_parser import HttpRequest, InvalidRequestError
from gateway.http.connections.response import HttpResponseWriter
from gateway.http.connections.start_queue import StartQueue
from gateway.http.errors import ErrorFormats
from gateway.http.request_context import MEMORY_KEY, RequestContext, is_monitoring, request_context
from gateway.http.request_counts import RequestCounts
from gateway.internal_errors import INTERNAL_ERRORS
from protocol import ids
from protocol.failures import Code, Failure
from protocol.runtime import logs

_READ_BYTES: Final = 64 * 1024
_REQUESTS_BEFORE_YIELD: Final = 16
"""Requests after which other greenlets run.

A client that sends without a pause, and reads as fast, never makes this greenlet wait, and would otherwise have the
process to itself.
"""
_LINGER_S: Final = 1.0
"""How long a client that has its answer may send nothing more before the connection is closed."""
_LONGEST_LINGER_S: Final = 15.0
"""How long it may go on sending in all; only ``_LINGER_S`` if the process keeps no connections, since it may be ending."""
_LINGER_BYTES: Final = 64 * 1024 * 1024
_LEFT: Final = Failure(Code.CANCELLED, CLIENT_LEFT)
_CLIENT_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF, errno.ETIMEDOUT})

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class ServingProcess(Protocol):
    """What a connection needs from the process that serves it."""

    wsgi: Application
    error_formats: ErrorFormats
    error_headers: Mapping[str, str]
    """Headers of errors that the application does not write."""
    base_environ: dict[str, Any]
    """What the environments of all requests have in common."""
    idle: dict[ClientSocket, None]
    """Connections that wait for their next request, longest wait first."""
    start_queue: StartQueue
    request_counts: RequestCounts
    keep_alive_s: float
    """Seconds that a connection waits for a whole head."""

    @property
    def keeps_connections(self) -> bool:
        """Whether connections may be kept for another request."""


class ClientConnection:
    """Serves one client until either side ends the connection."""

    __slots__ = ("_address", "_answered", "_environ", "_process", "_socket")

    def __init__(self, process: ServingProcess, client_socket: ClientSocket, address: Any) -> None:
        """Serve the client at ``address``."""
        self._process = process
        self._socket = client_socket
        self._address = address
        self._environ = wsgi_environ.connection_environ(process.base_environ, client_socket, address)
        self._answered = 0

    def serve(self) -> None:
        """Answer all requests; returns when the connection is closed. No client can make it raise."""
        try:
            self._serve()
        except OSError as problem:
            if problem.errno not in _CLIENT_GONE:
                logs.get_logger().exception("a connection broke")
        except gevent.GreenletExit:
            pass
        finally:
            self._socket.close()

    def _serve(self) -> None:
        data = b""
        while True:
            request = None
            try:
                request = self._next_request(data)
                if request is None:
                    return
                keeps_open = self._answer(HttpResponseWriter(request, self._socket), request)
            except OSError:
                raise
            except InvalidRequestError as problem:
                self._refuse(problem)
                return
            except Exception as problem:  # noqa: BLE001 - the client must get an answer
                self._fail(problem, request)
                return
            body = request.body
            if not keeps_open or not body.received:
                if not body.received:
                    self._linger()
                return
            data = body.following()

    def _next_request(self, data: bytes) -> HttpRequest | None:
        """Return the next request, of which ``data`` has arrived; None at the end of the connection.

        The connection also ends if the whole head does not arrive within the time for waiting for a request.
        """
        self._socket.expect_request(self._process.keep_alive_s, self._process.idle)
        try:
            # The first request usually arrives with the connection; before the next one, the client reads its answer.
            likely = not self._answered
            empty = 0  # bytes of empty lines before the request
            while True:
                if data.startswith((b"\r", b"\n")):
                    data, empty = request_parser.skip_empty_lines(data, empty)
                end = request_parser.head_end(data) if data else 0
                if end:
                    return request_parser.parse_request(self._environ, self._socket, data, end)
                more = self._socket.recv(_READ_BYTES, likely=likely)
                if not more:
                    return None
                data += more
        except InvalidRequestError as problem:
            problem.path = request_parser.requested_path(data)
            raise
        finally:
            self._socket.request_arrived()

    def _answer(self, response: HttpResponseWriter, request: HttpRequest) -> bool:
        """Answer one request; return whether another may follow."""
        environ, body = request.environ, request.body
        context = request_context(environ)
        self._wait_for_others(environ["PATH_INFO"])
        context.close_after = response.force_close
        context.hand_over = response.hand_over
        if not self._process.keeps_connections:
            response.force_close()
        complete = False
        try:
            pieces = self._process.wsgi(environ, response.start_response)
            if not body.received:
                # The rest of it must not be mistaken for the next request.
                response.force_close()
            try:
                for piece in pieces:
                    response.write(piece, last=context.last)
                response.close()
                complete = True
            finally:
                close = getattr(pieces, "close", None)
                if close is not None:
                    close()
        except (OSError, gevent.GreenletExit):
            raise
        except Exception as problem:
            if not response.headers_sent:
                raise
            # A second status line would corrupt the body. The client sees a broken response instead.
            INTERNAL_ERRORS.log(problem, "a response broke off", request_id=context.label)
            return False
        finally:
            self._log_and_count(context, environ, response, complete)
            memory: BodyMemory | None = environ.get(MEMORY_KEY)
            if context.held_body is not None and memory is not None:
                memory.release(context.held_body)
            context.release_connection()
        return not response.should_close()

    def _wait_for_others(self, path: str) -> None:
        """Let other requests go first if there are too many, or if this connection had too many.

        Raises ``ConnectionResetError`` if the client left meanwhile.
        """
        if not self._answered and not is_monitoring(path):
            may_begin = self._process.start_queue.wait(self._socket.is_closed_by_client)
            if not may_begin:
                self._process.request_counts.observe(path, _LEFT.http_status, 0.0, _LEFT.code.value)
                raise ConnectionResetError(errno.ECONNRESET, CLIENT_LEFT)
        self._answered += 1
        if not self._answered % _REQUESTS_BEFORE_YIELD:
            gevent.sleep(0)

    def _log_and_count(
        self, context: RequestContext, environ: dict[str, Any], response: HttpResponseWriter, complete: bool
    ) -> None:
        path = environ.get("PATH_INFO", "")
        seconds = time.monotonic() - context.started
        code = context.failure.code.value if context.failure is not None else ""
        if context.waits_for_slot:
            access_log.write(context, environ, response, seconds, complete=complete)
            return
        counts, route = self._process.request_counts, context.route or path
        counts.observe(route, response.status_code, seconds, code, context.inference)
        key = context.api_key
        admitted = key is not None or not context.keys_needed
        ended = not context.in_background
        if admitted and ended and environ.get("REQUEST_METHOD") == "POST":
            counts.ended(context, route, response.status_code, seconds, complete=complete)
            if code or not complete:
                name = key.name if key is not None else ""
                counts.failed(route, name, context.model, code or Code.CANCELLED.value, answered=context.answered)
        access_log.write(context, environ, response, seconds, complete=complete)

    def _refuse(self, problem: InvalidRequestError) -> None:
        """Answer a request with a refused head."""
        failure, label = problem.failure, ids.request_label(problem.request_id)
        client = self._address[0] if self._address else ""
        access_log.write_refused(failure, label, client)
        self._process.request_counts.observe(problem.path, failure.http_status, 0.0, failure.code.value)
        self._end_with(failure, label, problem.path)

    def _fail(self, problem: Exception, request: HttpRequest | None) -> None:
        """Answer a request after an exception outside the application."""
        label = request_context(request.environ).label if request else ids.request_label(None)
        path = request.environ["PATH_INFO"] if request else ""
        INTERNAL_ERRORS.log(problem, request_id=label)
        self._end_with(Failure(Code.INTERNAL, "an internal error; find it in the log by this request id"), label, path)

    def _end_with(self, failure: Failure, label: str, path: str) -> None:
        error_format = self._process.error_formats.for_path(path)
        with contextlib.suppress(OSError):
            self._socket.sendall(errors.whole_response(failure, label, error_format, self._process.error_headers))
        self._linger()

    def _linger(self) -> None:
        """Read what the client still sends: closing with unread data would reset the connection and lose our answer."""
        left = _LINGER_BYTES
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            begun = time.monotonic()
            while left > 0:
                longest = _LONGEST_LINGER_S if self._process.keeps_connections else _LINGER_S
                self._socket.set_read_deadline(min(begun + longest, time.monotonic() + _LINGER_S))
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    return
                left -= len(data)
