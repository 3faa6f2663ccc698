"""gunicorn's gevent worker as we want it: our error bodies, our log line, our way to leave."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from gunicorn.http import wsgi
from gunicorn.workers.ggevent import GeventWorker

from gateway import refusals
from gateway.bus import Bus
from gateway.house import House
from gateway.response import Response
from gateway.state import State
from gateway.visit import Visit, of
from protocol import logs
from protocol.failures import Code, Failure

_READ: Final = 1
_WELCOME_WAIT: Final = 1.0
_LINGER: Final = 1.0
_LINGER_BYTES: Final = 64 * 1024 * 1024


class Idle(gevent.Timeout):  # type: ignore[misc]
    """The wait for a connection's next request; :meth:`end` ends it early."""

    def __init__(self, seconds: float, waiting: set[Idle]) -> None:
        """Wait at most ``seconds``, and be found in ``waiting`` meanwhile."""
        super().__init__(seconds, exception=False)
        self._waiting = waiting
        self._greenlet: Any = None
        """Who waits; None before and after."""

    def __enter__(self) -> Self:
        self._greenlet = gevent.getcurrent()
        self._waiting.add(self)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self._waiting.discard(self)
        self._greenlet = None
        return super().__exit__(kind, value, trace)

    def end(self) -> None:
        """End it now, unless the request comes first."""
        self._waiting.discard(self)
        gevent.get_hub().loop.run_callback(self._throw)

    def _throw(self) -> None:
        if self._greenlet is not None:
            self._greenlet.throw(self)


class Door(GeventWorker):  # type: ignore[misc]
    """One gunicorn worker process. ``house`` is set in ``post_worker_init``."""

    house: House
    bus: Bus

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Before the fork: nothing that costs or that must not be shared."""
        super().__init__(*args, **kwargs)
        self._idle: set[Idle] = set()
        self._told = Event()
        self._watchers: list[Any] = []
        self._deadline: float | None = None
        self._log = logs.get()

    # A connection's requests

    def timeout_ctx(self) -> Idle:
        """Bound the wait for a request."""
        return Idle(self.cfg.keepalive, self._idle)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> bool:
        """Answer one request; raises ``StopIteration`` where the connection has to end."""
        response, environ = wsgi.create(req, sock, addr, listener_name, self.cfg, response_class=Response)
        environ["wsgi.multithread"] = True
        visit = of(environ)
        visit.close_after = response.force_close
        visit.hand_over = response.hand_over
        if not self.alive or not self.cfg.keepalive:
            response.force_close()
        complete = False
        try:
            pieces = self.wsgi(environ, response.start_response)
            try:
                for piece in pieces:
                    response.write(piece, last=visit.last)
                response.close()
                complete = True
            finally:
                if hasattr(pieces, "close"):
                    pieces.close()
        except (OSError, gevent.GreenletExit):
            raise
        except Exception:
            if not response.headers_sent:
                raise
            # A second status line would only make it worse: the client sees a broken response.
            logs.get().exception("a response broke off", request_id=visit.label)
            raise StopIteration from None
        finally:
            self._report(visit, environ, response, complete)
        if response.should_close():
            self._linger(req, sock)
            raise StopIteration
        return True

    def _report(self, visit: Visit, environ: dict[str, Any], response: Response, complete: bool) -> None:
        path = environ.get("PATH_INFO", "")
        story = visit.story()
        if not complete:
            story["broken"] = True
        getattr(self._log, visit.level(path))(
            "request",
            request_id=visit.label,
            method=environ.get("REQUEST_METHOD"),
            path=path,
            status=getattr(response, "status_code", 0),
            bytes=response.sent,
            ms=round((time.monotonic() - visit.started) * 1000, 2),
            client=environ.get("REMOTE_ADDR"),
            **story,
        )

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what the parser refused, or what nobody caught."""
        failure = refusals.failure_for(exc)
        label = refusals.label_for(req or getattr(exc, "req", None))
        if failure is None:
            logs.get().error("unexpected error", request_id=label, exc_info=exc)
            failure = Failure(Code.INTERNAL, "an internal error; the log has it under this request id")
        else:
            peer = addr[0] if addr else ""
            fields = {"status": failure.http_status, "code": failure.code.value, "reason": failure.message}
            logs.get().info("request", request_id=label, client=peer, **fields)
        with contextlib.suppress(OSError):
            client.sendall(refusals.response(failure, label))
            self._swallow(client)

    def _linger(self, req: Any, sock: Any) -> None:
        """Read what the client still sends: closing over it would reset the connection and lose our answer."""
        reader = getattr(req.body, "reader", None)
        unread = getattr(reader, "length", None)
        finished = unread == 0 if unread is not None else getattr(reader, "parser", None) is None
        if not finished:
            with contextlib.suppress(OSError):
                self._swallow(sock)

    @staticmethod
    def _swallow(sock: Any) -> None:
        sock.shutdown(socket.SHUT_WR)
        left = _LINGER_BYTES
        with gevent.Timeout(_LINGER, exception=False):
            while left > 0:
                data = sock.recv(65536)
                if not data:
                    return
                left -= len(data)

    # The process

    def init_signals(self) -> None:
        """Let signals wake the loop at once."""
        super().init_signals()
        watcher = gevent.get_hub().loop.io(self.PIPE[0], _READ)
        watcher.start(self._signalled)
        self._watchers.append(watcher)

    def _signalled(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.PIPE[0], 512)
        if not self.alive:
            self._told.set()

    def watch_process(self, pid: int, callback: Any) -> None:
        """Call back in the hub when ``pid`` ends."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            gevent.get_hub().loop.run_callback(callback)
            return
        watcher = gevent.get_hub().loop.io(descriptor, _READ)

        def ended() -> None:
            watcher.stop()
            watcher.close()
            os.close(descriptor)
            callback()

        watcher.start(ended)
        self._watchers.append(watcher)

    def leave(self, grace: float) -> None:
        """Begin to leave, as the house says (in the hub)."""
        self.cfg.set("keepalive", 0)
        self._deadline = time.monotonic() + grace
        if self.house.state is State.LOST:
            self.alive = False
        self._told.set()

    def run(self) -> None:
        """Serve until told to leave, then let running requests end."""
        # Bound once: a lazy logger is built anew for every line.
        self._log = logs.get().bind()
        with gevent.Timeout(_WELCOME_WAIT, exception=False):
            self.house.welcomed.wait()
        servers = []
        for listener in self.sockets:
            listener.setblocking(1)
            server = StreamServer(listener, handle=partial(self.handle, listener), spawn=Pool(self.worker_connections))
            if self.cfg.workers > 1:
                server.max_accept = 1
            server.start()
            servers.append(server)
        while self.alive:
            self.notify()
            self._told.wait(1.0)
            self._told.clear()
            if self._deadline is not None and time.monotonic() > self._deadline:
                gevent.get_hub().loop.run_callback(self.house.end_everything)
        self._close(servers)

    def _close(self, servers: list[StreamServer]) -> None:
        for server in servers:
            server.close()
        self.cfg.set("keepalive", 0)
        deadline = self._deadline or time.monotonic() + self.house.settings.grace
        while any(server.pool for server in servers):
            for idle in list(self._idle):
                idle.end()
            if time.monotonic() > deadline + 1.0:
                break
            if time.monotonic() > deadline:
                gevent.get_hub().loop.run_callback(self.house.end_everything)
            self.notify()
            gevent.sleep(0.05)
        for server in servers:
            server.stop(timeout=0.5)

    def master_died(self) -> None:
        """Leave at once: nobody watches over us any more, and the next master brings its own workers."""
        logs.get().error("the gunicorn master is gone")
        os.kill(os.getpid(), signal.SIGKILL)
