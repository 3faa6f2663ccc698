"""One client's connection: its requests one after the other, each read, answered and told of in the log.

Plain requests are read by ``plain.py``.  The first one that is not hands the connection over to gunicorn's parser,
for as long as it lasts.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import gevent
from gunicorn.http import wsgi
from gunicorn.http.errors import NoMoreData

from gateway.http import llhttp_parser, parse_errors
from gateway.http.client_socket import ClientSocket
from gateway.http.gunicorn_parser import GunicornParser
from gateway.http.request_context import RequestContext, request_context
from gateway.http.response import HttpResponseWriter
from protocol import ids
from protocol.failures import Code, Failure
from protocol.runtime import logs

_FIRST_READ: Final = 64 * 1024
_REQUESTS_PER_TURN: Final = 16
"""Requests after which the others of the process have their turn: a client that sends without a pause, and reads as
fast, never makes us wait, and would have the process to itself."""
_LINGER_S: Final = 1.0
_LINGER_BYTES: Final = 64 * 1024 * 1024
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF})

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class ServingProcess(Protocol):
    """What a connection needs of the process that serves it."""

    cfg: Any
    wsgi: Application
    common: dict[str, Any]
    """What all environments have in common."""
    listener: Any
    """The listener's address."""

    idle: set[ClientSocket]
    """Those whose next request is waited for."""
    keep_alive_s: float
    """Seconds that a request is waited for."""

    @property
    def keeps_connections(self) -> bool:
        """Whether connections may be kept for another request."""


class ClientConnection:
    """Serves one client until either side has had enough."""

    __slots__ = ("_address", "_answered", "_process", "_socket")

    def __init__(self, process: ServingProcess, peer: ClientSocket, address: Any) -> None:
        """Serve ``peer``."""
        self._process = process
        self._socket = peer
        self._address = address
        self._answered = 0

    def serve(self) -> None:
        """Answer its requests; returns when the connection is closed. Raises nothing that is the client's doing."""
        try:
            self._serve()
        except OSError as problem:
            if problem.errno not in _GONE:
                logs.get_logger().exception("a connection broke")
        except gevent.GreenletExit:
            pass
        finally:
            self._socket.close()

    def _serve(self) -> None:
        reader = llhttp_parser.LlhttpParser(self._process.common, self._socket, self._address)
        data = b""
        while data := data or self._next():
            request = reader.read(data)
            if request is None:
                self._leave_to_gunicorn(data)
                return
            try:
                keeps_open = self._answer(HttpResponseWriter(request, self._socket), request.environ)
            except OSError:
                raise
            except Exception as problem:  # noqa: BLE001 - nobody else would tell the client
                self._refuse(problem, request.environ.get("HTTP_X_REQUEST_ID"))
                return
            body = request.body
            if not keeps_open or not body.here:
                if body.left:
                    self._linger()
                return
            data = body.rest()

    def _next(self) -> bytes:
        """Return the beginning of the next request; empty at the end of the connection, or after too long a wait."""
        self._socket.expect_request(self._process.keep_alive_s, self._process.idle)
        try:
            # The first one mostly came with the connection; before the next, the client reads its answer.
            return self._socket.recv(_FIRST_READ, likely=not self._answered)
        finally:
            self._socket.request_arrived()

    def _leave_to_gunicorn(self, data: bytes) -> None:
        process = self._process
        parser = GunicornParser(process.cfg, self._socket, self._address)
        parser.unreader.unread(data)
        while True:
            request = None
            try:
                self._socket.expect_request(process.keep_alive_s, process.idle)
                try:
                    request = next(parser)
                finally:
                    self._socket.request_arrived()
                # create would say "continue" before anybody has looked at the request.
                waits, request._expected_100_continue = request._expected_100_continue, False  # noqa: SLF001
                response, environ = wsgi.create(
                    request,
                    self._socket,
                    self._address,
                    process.listener,
                    process.cfg,
                    response_class=HttpResponseWriter,
                )
                if waits:
                    environ["wsgi.input"] = _ContinueBody(request.body, self._socket)
                environ["wsgi.multithread"] = True
                if not self._answer(response, environ):
                    if not _fully_read(request.body):
                        self._linger()
                    return
            except (NoMoreData, StopIteration):
                return
            except OSError:
                raise
            except Exception as problem:  # noqa: BLE001 - nobody else would tell the client
                self._refuse(problem, parse_errors.request_id_of(request or getattr(problem, "req", None)))
                return

    def _answer(self, response: HttpResponseWriter, environ: dict[str, Any]) -> bool:
        """Answer one request; return whether another may follow."""
        self._answered += 1
        if not self._answered % _REQUESTS_PER_TURN:
            gevent.sleep(0)
        context = request_context(environ)
        context.close_after = response.force_close
        context.hand_over = response.hand_over
        if not self._process.keeps_connections:
            response.force_close()
        body = environ["wsgi.input"]
        complete = False
        try:
            pieces = self._process.wsgi(environ, response.start_response)
            if not (body.here if type(body) is llhttp_parser.SizedBody else _fully_read(body)):
                # Nobody wanted it, and what is still to come must not be taken for the next request.
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
        except Exception:
            if not response.headers_sent:
                raise
            # A second status line would only make it worse: the client sees a broken response.
            logs.get_logger().exception("a response broke off", request_id=context.label)
            return False
        finally:
            self._report(context, environ, response, complete)
            context.leave()
        return not response.should_close()

    def _report(
        self, context: RequestContext, environ: dict[str, Any], response: HttpResponseWriter, complete: bool
    ) -> None:
        path = environ.get("PATH_INFO", "")
        log_fields = context.log_fields()
        if not complete:
            log_fields["broken"] = True
        fields = {
            "request_id": context.label,
            "method": environ.get("REQUEST_METHOD"),
            "path": path,
            "status": response.status_code,
            "bytes": response.sent,
            "ms": round((time.monotonic() - context.started) * 1000, 2),
            "client": environ.get("REMOTE_ADDR"),
            **log_fields,
        }
        logs.log_batched(context.level(path), "request", fields)

    def _refuse(self, problem: BaseException, given: str | None) -> None:
        """Answer what the parser refused, or what nobody caught."""
        failure = parse_errors.failure_for(problem)
        label = ids.request_label(given)
        if failure is None:
            logs.get_logger().error("unexpected error", request_id=label, exc_info=problem)
            failure = Failure(Code.INTERNAL, "an internal error; the log has it under this request id")
        else:
            peer = self._address[0] if self._address else ""
            fields = {"status": failure.http_status, "code": failure.code.value, "reason": failure.message}
            logs.get_logger().info("request", request_id=label, client=peer, **fields)
        with contextlib.suppress(OSError):
            self._socket.sendall(parse_errors.error_response(failure, label))
        self._linger()

    def _linger(self) -> None:
        """Read what the client still sends: closing over it would reset the connection and lose our answer."""
        left = _LINGER_BYTES
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            with gevent.Timeout(_LINGER_S, exception=False):
                while left > 0:
                    data = self._socket.recv(65536)
                    if not data:
                        return
                    left -= len(data)


class _ContinueBody:
    """A body that the client sends when it is asked to: what is refused unread is refused before it comes."""

    def __init__(self, body: Any, peer: ClientSocket) -> None:
        """Ask nothing yet."""
        self._body = body
        self._socket = peer
        self._asked = False
        self.reader = body.reader

    def read(self, size: int | None = None) -> bytes:
        """Ask for it the first time, and read as gunicorn does."""
        if not self._asked:
            self._asked = True
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        data: bytes = self._body.read(size)
        return data


def _fully_read(body: Any) -> bool:
    """Return whether all of a body that gunicorn reads was read."""
    reader = getattr(body, "reader", None)
    unread = getattr(reader, "length", None)
    return unread == 0 if unread is not None else getattr(reader, "parser", None) is None
