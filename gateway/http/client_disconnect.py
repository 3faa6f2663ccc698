"""Notices that a client hangs up while its request waits or streams.

A WSGI application that waits for something else cannot notice this. A client that ends only its sending side counts as
one that left, as in nginx, Go's server and llama-server: TCP reports both alike. Bytes of a pipelined request are not a
hang-up. After them, only the state of the connection shows one; it is read once a second. Most requests are answered
before a client can hang up, and watching a socket takes two system calls: so watching begins after a moment.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gevent

from gateway.http.request_context import SOCKET_KEY

CLIENT_LEFT: Final = "the client hung up, or ended its side of the connection"
"""Message of the failure."""
_READ: Final = 1
WATCH_DELAY_S: Final = 0.05
"""Seconds before watching begins."""
CUT_DELAY_S: Final = 0.4
"""Seconds that a client has to read why its request ends."""


class _DelayedWatches:
    """Watches that have not begun, oldest first, with one timer for all."""

    def __init__(self) -> None:
        self._delayed: deque[tuple[float, HangUpWatch]] = deque()
        self._timer: Any = None

    def add(self, watch: HangUpWatch) -> None:
        self._delayed.append((time.monotonic() + WATCH_DELAY_S, watch))
        if self._timer is None:
            self._timer = gevent.get_hub().loop.timer(WATCH_DELAY_S, WATCH_DELAY_S)
            self._timer.start(self._begin_due)

    def _begin_due(self) -> None:
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            self._delayed.popleft()[1].begin()
        if not self._delayed:
            self._timer.stop()
            self._timer.close()
            self._timer = None


_delayed_watches = _DelayedWatches()


def _ignore() -> None:
    """Do nothing: the watch is closed."""


class HangUpWatch:
    """Calls back once, in the hub, when the client of a request hangs up. Close it before the request ends."""

    __slots__ = ("_callback", "_open", "_socket", "_timer", "_watcher")

    def __init__(self, env: dict[str, Any], callback: Callable[[], None]) -> None:
        """Watch the connection of ``env`` (``req.env``)."""
        self._callback = callback
        self._socket: Any = env.get(SOCKET_KEY)
        self._timer: Any = None
        self._watcher: Any = None
        self._open = self._socket is not None
        if self._open:
            _delayed_watches.add(self)

    def begin(self) -> None:
        """Watch from now on, unless the watch is closed (in the hub)."""
        if self._open:
            self._watcher = gevent.get_hub().loop.io(self._socket.fileno(), _READ)
            self._watcher.start(self._readable)

    def _readable(self) -> None:
        try:
            # The socket that never waits: this is the hub.
            pipelined = self._socket.raw.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pipelined = b""
        self._stop()
        if not pipelined:
            self._callback()
            return
        self._timer = gevent.get_hub().loop.timer(1.0, 1.0)
        self._timer.start(self._check_state)

    def _check_state(self) -> None:
        if self._socket.is_closed_by_client():
            self._stop()
            self._callback()

    def cut(self, after: float = 0.0) -> None:
        """Break the connection after this many seconds, unless the request has ended by then: a blocked write then fails at once."""
        if after:
            gevent.spawn_later(after, self.cut)
        elif self._open:
            self._socket.cut()

    def _stop(self) -> None:
        for watcher in (self._watcher, self._timer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._watcher = self._timer = None

    def close(self) -> None:
        """Stop watching. Idempotent; call it before the connection is read for its next request."""
        self._open = False
        # A reference to the owner would keep it and its request alive until the next garbage collection.
        self._callback = _ignore
        if self._watcher is not None or self._timer is not None:
            self._stop()
