"""A client's socket: what can be done at once is, and otherwise its greenlet waits.

gevent's own makes two watchers for each connection, and passes some twenty calls to open it, to wait for a while and
to close it: a seventh of what a gateway does for a small request.  This one makes a watcher when there is one to use.
"""

from __future__ import annotations

import contextlib
import socket
import time
from _socket import socket as Raw  # noqa: N812 - the standard library's class adds what a server has no use for
from typing import Any, Final

import gevent

from gateway.waker import GreenletWaker
from protocol.runtime import logs

_READ: Final = 1
_WRITE: Final = 2


class ClientSocket:
    """One connection. One greenlet may read while another one writes; whoever closes it is the last."""

    __slots__ = ("_idle", "_pause", "_reader", "_reading", "_until", "_writer", "_writing", "raw")

    def __init__(self, family: int, kind: int, protocol: int, descriptor: int) -> None:
        """Own ``descriptor``."""
        self.raw = Raw(family, kind, protocol, descriptor)
        """The socket, which never waits."""
        self.raw.setblocking(False)
        self._reading = GreenletWaker()
        self._writing: GreenletWaker | None = None
        self._reader: Any = None
        self._writer: Any = None
        self._until: float | None = None
        self._pause: float | None = None
        self._idle: set[ClientSocket] | None = None

    def fileno(self) -> int:
        """Return its descriptor."""
        return self.raw.fileno()

    def expect_request(self, seconds: float, idle: set[ClientSocket]) -> None:
        """Expect a request from now on: what is read ends after ``seconds``, or with :meth:`give_up`.

        It can be found in ``idle`` until :meth:`relax`.
        """
        self._until = time.monotonic() + seconds
        self._idle = idle
        idle.add(self)

    def request_arrived(self) -> None:
        """The request is here: wait for the rest of it as long as it takes."""
        self._until = None
        if self._idle is not None:
            self._idle.discard(self)

    def stop_expecting(self) -> None:
        """Expect nothing more, unless it is here already."""
        if self._until is not None:
            self._until = 0.0
            gevent.get_hub().loop.run_callback(self._end)

    def set_read_timeout(self, seconds: float | None) -> None:
        """From now on, what is read ends when nothing came for ``seconds``; ``None``: wait as long as it takes."""
        self._pause = seconds
        self._until = None

    @property
    def stalled(self) -> bool:
        """Whether it ended so."""
        return self._pause is not None and self._until is not None

    def _end(self) -> None:
        if self._until is not None:  # else its request came in this very turn
            self._reading.wake(False)

    def recv(self, size: int, *, likely: bool = True) -> bytes:
        """Return what there is, waiting for it; empty at the client's end, or when it is not waited for any longer.

        ``likely``: look before waiting.  Raises ``OSError``.
        """
        while True:
            if likely:
                try:
                    return self.raw.recv(size)
                except BlockingIOError:
                    pass
            likely = True
            if not self._readable():
                return b""

    def _readable(self) -> bool:
        left = self._pause
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                return False
        watcher = self._reader
        if watcher is None:
            watcher = self._reader = gevent.get_hub().loop.io(self.raw.fileno(), _READ)
        watcher.start(self._reading.wake)
        try:
            woken = self._reading.wait(left)
        finally:
            watcher.stop()
        if not woken and self._until is None:
            self._until = 0.0  # whoever asks again need not wait again
        return woken

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it, in one system call where there is room; raises ``OSError``."""
        while True:
            try:
                sent = self.raw.send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
            self._writable()

    def send(self, data: bytes) -> int:
        """Send all of it, and return how much that was: for those who only know this name."""
        self.sendall(data)
        return len(data)

    def _writable(self) -> None:
        if self._writing is None:
            self._writing = GreenletWaker()
            self._writer = gevent.get_hub().loop.io(self.raw.fileno(), _WRITE)
        watcher = self._writer
        watcher.start(self._writing.wake)
        try:
            self._writing.wait(None)
        finally:
            watcher.stop()

    def shutdown(self, how: int) -> None:
        """End one direction or both; raises ``OSError``."""
        self.raw.shutdown(how)

    def cut(self) -> None:
        """Break the connection: a write that is stuck in it fails at once. Raises nothing."""
        with contextlib.suppress(OSError):
            self.raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give it back; raises nothing. Idempotent."""
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = None
        try:
            self.raw.close()
        except OSError as problem:
            logs.get_logger().debug("a connection did not close well", problem=problem.strerror)
