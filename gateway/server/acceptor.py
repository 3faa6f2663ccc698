"""Accepts connections, a few at a time, and serves each at once in its own greenlet.

Clients that reconnect as fast as they are answered keep a listener readable. If all of them were accepted before the
first is served, an engine would wait for requests that are already here (traced: 8 ms for a burst of 32). So a new
connection is served, up to its first wait, before the next one is accepted.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable
from select import POLLIN, poll  # by name: gevent's replacement would wait, which the hub cannot
from typing import Any, Final

import gevent
from greenlet import greenlet

from gateway.http.connections.client_socket import ClientSocket
from gateway.internal_errors import INTERNAL_ERRORS
from protocol.runtime import logs

ACCEPT_BATCH: Final = 4
"""Connections that are accepted in one iteration of the event loop, at first."""
MAX_ACCEPT_BATCH: Final = 64
"""A lasting burst doubles the batch in each iteration, up to this.

Few of its requests begin at once (``gateway/http/connections/start_queue.py``), but a monitor among them must be found
soon.
"""
_MAX_SPARE_GREENLETS: Final = 64
"""Greenlets that wait for another connection: a new one costs two system calls, and memory shared by all threads."""
PAUSE_S: Final = 0.1
"""Seconds without accepting when all connections are busy, or after an error of the system (usually too many open files)."""
LOG_INTERVAL_S: Final = 10.0
"""Least seconds between two log lines about such errors."""
_MAX_BACKLOG: Final = 4096
"""Connections that are accepted at the end: as many as can wait in the listener."""
_READ: Final = 1

ServeConnection = Callable[[ClientSocket, Any], None]


class Acceptor:
    """One listener and its open connections."""

    def __init__(
        self,
        listener: Any,
        serve: ServeConnection,
        most: int,
        accept_batch: int = ACCEPT_BATCH,
        end_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call ``serve(client_socket, address)`` for each connection, for about ``most`` at the same time.

        ``listener``: a listening socket of gevent's. ``serve`` runs in a greenlet, and closes its socket. ``end_idle``
        ends the connection that has waited longest for a request, which frees a place for a new one, and returns whether there
        was one.
        """
        self._listener = listener
        self._serve = serve
        self._most = most
        self._end_idle = end_idle
        self._first_batch = self._batch = accept_batch
        # Read once: each access makes an enumeration.
        self._kind = listener.family, listener.type, listener.proto
        self._busy: set[greenlet] = set()
        self._idle: list[greenlet] = []
        self._hub = gevent.get_hub()
        listener.setblocking(False)
        # Before the events of open connections: most of them end.
        self._watcher: Any = self._hub.loop.io(listener.fileno(), _READ, priority=self._hub.loop.MAXPRI)
        self._pause_timer: Any = None
        """The timer that ends a pause: no place is free, or the system has reported an error."""
        self._paused = False
        self._refused = 0
        """Errors of the system since the last log line."""
        self._silent_until = 0.0

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._busy)

    def start(self) -> None:
        """Accept connections from now on, or again."""
        self._paused = False
        if self._watcher is not None and self._pause_timer is None and len(self._busy) < self._most:
            self._watcher.start(self._accept_ready)

    def pause(self) -> None:
        """Leave new connections to other processes until :meth:`start`, even at the end."""
        self._paused = True
        if self._watcher is not None:
            self._watcher.stop()

    def _accept_ready(self) -> None:
        for _ in range(self._batch):
            full = len(self._busy) >= self._most
            if full and not self._connection_waits():
                return
            if full and not self._end_idle():
                # The next connection that ends starts it again. A connection that becomes idle is found after the
                # pause.
                self._pause_accepting()
                return
            try:
                fd, address = self._listener._accept()  # noqa: SLF001
                connection = ClientSocket(*self._kind, fd), address
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                self._batch = self._first_batch
                return
            except OSError as problem:
                if problem.errno == errno.EINVAL:
                    # Another process has shut down the listener, so this one is about to be told to end.
                    self._watcher.stop()
                    return
                if not self._connection_waits():
                    return  # if no file may be opened, the system says so before it looks for a connection
                self._log_refusal(problem)
                self._end_idle()
                self._pause_accepting()
                return
            child = self._idle.pop() if self._idle else greenlet(self._serve_connections, self._hub)
            self._busy.add(child)
            child.switch(connection)
            if full:
                return  # the connection that was told to end does so in the next iteration
        self._batch = min(2 * self._batch, MAX_ACCEPT_BATCH)

    def _connection_waits(self) -> bool:
        """Return whether a client waits to be accepted; while none does, no connection is ended for it."""
        waiting = poll()
        waiting.register(self._listener.fileno(), POLLIN)
        return bool(waiting.poll(0))

    def _log_refusal(self, problem: OSError) -> None:
        self._refused += 1
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + LOG_INTERVAL_S
            fields = {"reason": problem.strerror, "open": len(self._busy), "times": self._refused}
            logs.get_logger().warning("not accepting connections for a moment", **fields)
            self._refused = 0

    def _pause_accepting(self) -> None:
        self._watcher.stop()
        self._pause_timer = self._hub.loop.timer(PAUSE_S)
        self._pause_timer.start(self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.close()
            self._pause_timer = None
        if not self._paused and self._watcher is not None:
            self._watcher.start(self._accept_ready)

    def _serve_connections(self, connection: tuple[Any, Any]) -> None:
        """Serve one connection after the other."""
        current = gevent.getcurrent()
        while True:
            logs.bind_request_id("")  # the last request of the connection before
            try:
                self._serve(*connection)
            except gevent.GreenletExit:
                return
            except Exception as problem:  # noqa: BLE001 - it would be raised into the hub
                INTERNAL_ERRORS.log(problem)
            finally:
                self._busy.discard(current)
            if self._watcher is None or len(self._idle) >= _MAX_SPARE_GREENLETS:
                return
            self._resume_accepting()
            self._idle.append(current)
            connection = self._hub.switch()

    def close(self, for_all: bool = False) -> None:
        """Accept the connections that already wait, unless paused, but no more. Open ones stay. Idempotent.

        ``for_all``: later ones are refused, instead of waiting for other processes that have the listener.
        """
        if self._watcher is not None and not self._paused:
            self._accept_backlog()
        if for_all:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
        for watcher in (self._watcher, self._pause_timer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._watcher = self._pause_timer = None
        with contextlib.suppress(OSError):
            self._listener.close()

    def _accept_backlog(self) -> None:
        # Not in the hub, unlike above: each begins when the caller waits.
        with contextlib.suppress(OSError):
            for _ in range(_MAX_BACKLOG):
                fd, address = self._listener._accept()  # noqa: SLF001
                self._busy.add(gevent.spawn(self._serve_connections, (ClientSocket(*self._kind, fd), address)))

    def kill(self) -> None:
        """End the connections that are still open. Call it in a greenlet, after :meth:`close`."""
        for child in list(self._busy):
            gevent.kill(child)
