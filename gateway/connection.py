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

from gateway import plain, refusals
from gateway.peer import Peer
from gateway.response import Response
from gateway.strict import Parser
from gateway.visit import Visit, of
from protocol import ids, logs
from protocol.failures import Code, Failure

_FIRST_READ: Final = 64 * 1024
_BREATH: Final = 16
"""Requests after which the others of the process have their turn: a client that sends without a pause, and reads as
fast, never makes us wait, and would have the process to itself."""
_LINGER: Final = 1.0
_LINGER_BYTES: Final = 64 * 1024 * 1024
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF})

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Process(Protocol):
    """What a connection needs of the process that serves it."""

    cfg: Any
    wsgi: Application
    common: dict[str, Any]
    """What all environments have in common."""
    listener: Any
    """The listener's address."""

    idle: set[Peer]
    """Those whose next request is waited for."""
    patience: float
    """Seconds that a request is waited for."""

    @property
    def stays(self) -> bool:
        """Whether connections may be kept for another request."""


class Connection:
    """Serves one client until either side has had enough."""

    __slots__ = ("_address", "_answered", "_peer", "_process")

    def __init__(self, process: Process, peer: Peer, address: Any) -> None:
        """Serve ``peer``."""
        self._process = process
        self._peer = peer
        self._address = address
        self._answered = 0

    def serve(self) -> None:
        """Answer its requests; returns when the connection is closed. Raises nothing that is the client's doing."""
        try:
            self._serve()
        except OSError as problem:
            if problem.errno not in _GONE:
                logs.get().exception("a connection broke")
        except gevent.GreenletExit:
            pass
        finally:
            self._peer.close()

    def _serve(self) -> None:
        reader = plain.Reader(self._process.common, self._peer, self._address)
        data = b""
        while data := data or self._next():
            request = reader.read(data)
            if request is None:
                self._leave_to_gunicorn(data)
                return
            try:
                goes_on = self._answer(Response(request, self._peer), request.environ)
            except OSError:
                raise
            except Exception as problem:  # noqa: BLE001 - nobody else would tell the client
                self._refuse(problem, request.environ.get("HTTP_X_REQUEST_ID"))
                return
            body = request.body
            if not goes_on or not body.here:
                if body.left:
                    self._linger()
                return
            data = body.rest()

    def _next(self) -> bytes:
        """Return the beginning of the next request; empty at the end of the connection, or after too long a wait."""
        self._peer.expect(self._process.patience, self._process.idle)
        try:
            # The first one mostly came with the connection; before the next, the client reads its answer.
            return self._peer.recv(_FIRST_READ, likely=not self._answered)
        finally:
            self._peer.relax()

    def _leave_to_gunicorn(self, data: bytes) -> None:
        process = self._process
        parser = Parser(process.cfg, self._peer, self._address)
        parser.unreader.unread(data)
        while True:
            request = None
            try:
                self._peer.expect(process.patience, process.idle)
                try:
                    request = next(parser)
                finally:
                    self._peer.relax()
                # create would say "continue" before anybody has looked at the request.
                waits, request._expected_100_continue = request._expected_100_continue, False  # noqa: SLF001
                response, environ = wsgi.create(
                    request, self._peer, self._address, process.listener, process.cfg, response_class=Response
                )
                if waits:
                    environ["wsgi.input"] = _Awaited(request.body, self._peer)
                environ["wsgi.multithread"] = True
                if not self._answer(response, environ):
                    if not _finished(request.body):
                        self._linger()
                    return
            except (NoMoreData, StopIteration):
                return
            except OSError:
                raise
            except Exception as problem:  # noqa: BLE001 - nobody else would tell the client
                self._refuse(problem, refusals.label_in(request or getattr(problem, "req", None)))
                return

    def _answer(self, response: Response, environ: dict[str, Any]) -> bool:
        """Answer one request; return whether another may follow."""
        self._answered += 1
        if not self._answered % _BREATH:
            gevent.sleep(0)
        visit = of(environ)
        visit.close_after = response.force_close
        visit.hand_over = response.hand_over
        if not self._process.stays:
            response.force_close()
        body = environ["wsgi.input"]
        complete = False
        try:
            pieces = self._process.wsgi(environ, response.start_response)
            if not (body.here if type(body) is plain.Body else _finished(body)):
                # Nobody wanted it, and what is still to come must not be taken for the next request.
                response.force_close()
            try:
                for piece in pieces:
                    response.write(piece, last=visit.last)
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
            logs.get().exception("a response broke off", request_id=visit.label)
            return False
        finally:
            self._report(visit, environ, response, complete)
            visit.leave()
        return not response.should_close()

    def _report(self, visit: Visit, environ: dict[str, Any], response: Response, complete: bool) -> None:
        path = environ.get("PATH_INFO", "")
        story = visit.story()
        if not complete:
            story["broken"] = True
        fields = {
            "request_id": visit.label,
            "method": environ.get("REQUEST_METHOD"),
            "path": path,
            "status": response.status_code,
            "bytes": response.sent,
            "ms": round((time.monotonic() - visit.started) * 1000, 2),
            "client": environ.get("REMOTE_ADDR"),
            **story,
        }
        logs.later(visit.level(path), "request", fields)

    def _refuse(self, problem: BaseException, given: str | None) -> None:
        """Answer what the parser refused, or what nobody caught."""
        failure = refusals.failure_for(problem)
        label = ids.label(given)
        if failure is None:
            logs.get().error("unexpected error", request_id=label, exc_info=problem)
            failure = Failure(Code.INTERNAL, "an internal error; the log has it under this request id")
        else:
            peer = self._address[0] if self._address else ""
            fields = {"status": failure.http_status, "code": failure.code.value, "reason": failure.message}
            logs.get().info("request", request_id=label, client=peer, **fields)
        with contextlib.suppress(OSError):
            self._peer.sendall(refusals.response(failure, label))
        self._linger()

    def _linger(self) -> None:
        """Read what the client still sends: closing over it would reset the connection and lose our answer."""
        left = _LINGER_BYTES
        with contextlib.suppress(OSError):
            self._peer.shutdown(socket.SHUT_WR)
            with gevent.Timeout(_LINGER, exception=False):
                while left > 0:
                    data = self._peer.recv(65536)
                    if not data:
                        return
                    left -= len(data)


class _Awaited:
    """A body that the client sends when it is asked to: what is refused unread is refused before it comes."""

    def __init__(self, body: Any, peer: Peer) -> None:
        """Ask nothing yet."""
        self._body = body
        self._peer = peer
        self._asked = False
        self.reader = body.reader

    def read(self, size: int | None = None) -> bytes:
        """Ask for it the first time, and read as gunicorn does."""
        if not self._asked:
            self._asked = True
            self._peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        data: bytes = self._body.read(size)
        return data


def _finished(body: Any) -> bool:
    """Return whether all of a body that gunicorn reads was read."""
    reader = getattr(body, "reader", None)
    unread = getattr(reader, "length", None)
    return unread == 0 if unread is not None else getattr(reader, "parser", None) is None
