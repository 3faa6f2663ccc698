"""Notices a client that hangs up, while its request waits or streams.

A WSGI handler that waits for something else never learns of it.  A client that ends its sending side alone is taken for
one that left, as nginx, Go's server and llama-server take it: TCP tells both in the same way.  Bytes of a pipelined
request are no hang-up; after them only the connection's state can tell, so that is looked at once a second.  Most
requests are answered before anybody can hang up, and to watch a socket costs two system calls: so only what is older
than a moment is.
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
"""What whoever is still there reads of it."""
_READ: Final = 1
_CLOSED_BY_PEER: Final = frozenset({7, 8, 9, 11})
"""TCP states CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING."""


WATCH_DELAY_S: Final = 0.05
"""Seconds for which nobody watches."""


class _DelayedWatches:
    """Watches that have not begun yet, oldest first, under one timer."""

    def __init__(self) -> None:
        self._delayed: deque[tuple[float, HangUpWatch]] = deque()
        self._timer: Any = None

    def add(self, watch: HangUpWatch) -> None:
        self._delayed.append((time.monotonic() + WATCH_DELAY_S, watch))
        if self._timer is None:
            self._timer = gevent.get_hub().loop.timer(WATCH_DELAY_S, WATCH_DELAY_S)
            self._timer.start(self._look)

    def _look(self) -> None:
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            self._delayed.popleft()[1].begin()
        if not self._delayed:
            self._timer.stop()
            self._timer.close()
            self._timer = None


_delayed_watches = _DelayedWatches()


def _ignore() -> None:
    """Stand in for what nobody wants to hear any more."""


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
        """Watch from now on, if it is not closed already (in the hub)."""
        if self._open:
            self._watcher = gevent.get_hub().loop.io(self._socket.fileno(), _READ)
            self._watcher.start(self._readable)

    def _readable(self) -> None:
        try:
            # The one that never waits: we are in the hub.
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
        self._timer.start(self._look)

    def _look(self) -> None:
        try:
            state = self._socket.raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            state = 7
        if state in _CLOSED_BY_PEER:
            self._stop()
            self._callback()

    def cut(self) -> None:
        """Break the connection: a write that is stuck in it fails at once."""
        if self._socket is not None:
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
        self._callback = _ignore  # or whoever owns us would be kept, and its request, until cycles are looked for
        self._stop()
