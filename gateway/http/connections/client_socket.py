"""A client's socket: reading and writing return at once if they can; otherwise the greenlet waits.

gevent's own socket makes two watchers for each connection, and takes about twenty calls to open it, to wait with a
timeout and to close it: a seventh of a gateway's work for a small request. This one makes a watcher at the first wait.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from _socket import socket as Raw  # noqa: N812 - the standard library's class adds what a server has no use for
from typing import Any, Final

import gevent

from gateway.waker import GreenletWaker
from protocol.runtime import logs

_READ: Final = 1
_WRITE: Final = 2
_CLOSED_BY_PEER: Final = frozenset({7, 8, 9, 11})
"""TCP states CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

FIRST_REQUEST_S: Final = 0.5
"""Seconds that a new connection has for its first request before it is ended for others: the client may be between connecting and sending."""
READS_BEFORE_YIELD: Final = 16
"""Reads without a wait after which other greenlets run and the deadline is checked: a client may send as fast as we read."""
WRITE_TIMEOUT_S: Final = 60.0
"""Seconds after which a connection is reset if its client takes nothing of what waits to be sent."""

not_reading: Final[dict[ClientSocket, float]] = {}
"""Sockets whose client takes nothing of what waits to be sent, and since when (monotonic seconds), the longest first."""


class ClientSocket:
    """One connection. One greenlet may read while another writes; the one that closes it must be the last."""

    __slots__ = (
        "_deadline",
        "_idle",
        "_new_until",
        "_reader",
        "_reading",
        "_reads",
        "_writer",
        "_writing",
        "raw",
        "timed_out",
    )

    def __init__(self, family: int, kind: int, protocol: int, descriptor: int) -> None:
        """Own ``descriptor``."""
        self.raw = Raw(family, kind, protocol, descriptor)
        """The socket, which never waits."""
        self.raw.setblocking(False)
        self.timed_out = False
        """Whether the last read ended because of its deadline."""
        self._reads = 0
        """Reads since the last wait."""
        self._reading = GreenletWaker()
        self._writing: GreenletWaker | None = None
        self._reader: Any = None
        self._writer: Any = None
        self._deadline: float | None = None
        """Monotonic seconds at which reading ends."""
        self._new_until = time.monotonic() + FIRST_REQUEST_S
        self._idle: dict[ClientSocket, None] | None = None

    def fileno(self) -> int:
        """Return its descriptor."""
        return self.raw.fileno()

    def is_closed_by_client(self) -> bool:
        """Return whether the client closed the connection, or its own side of it, whatever is left to read."""
        try:
            return self.raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _CLOSED_BY_PEER
        except OSError:
            return True

    def expect_request(self, seconds: float, idle: dict[ClientSocket, None]) -> None:
        """Wait for a request from now on. Reading ends after ``seconds``, or with :meth:`stop_expecting`.

        The socket is the last of ``idle`` until :meth:`request_arrived`.
        """
        self._deadline = time.monotonic() + seconds
        self._idle = idle
        idle[self] = None

    def request_arrived(self) -> None:
        """Remove the deadline: the request is here."""
        self._deadline = None
        self._new_until = 0.0
        if self._idle is not None:
            self._idle.pop(self, None)

    def is_new(self) -> bool:
        """Return whether its first request may be on its way; see :data:`FIRST_REQUEST_S`."""
        return time.monotonic() < self._new_until

    def stop_expecting(self) -> None:
        """End the wait for a request, unless the request has already arrived."""
        if self._deadline is not None:
            self._deadline = 0.0
            gevent.get_hub().loop.run_callback(self._end_wait)

    def set_read_deadline(self, deadline: float | None) -> None:
        """End reading at ``deadline`` (monotonic seconds); ``None``: no deadline."""
        self._deadline = deadline
        self.timed_out = False

    def _end_wait(self) -> None:
        if self._deadline is not None:  # otherwise its request arrived in this very iteration of the loop
            self._reading.wake(False)

    def recv(self, size: int, *, likely: bool = True) -> bytes:
        """Return the bytes that have arrived, waiting for the first; empty at the client's end, or at the deadline.

        ``likely``: try before waiting.  Raises ``OSError``.
        """
        while True:
            if likely and self._reads < READS_BEFORE_YIELD:
                try:
                    data = self.raw.recv(size)
                except BlockingIOError:
                    pass
                else:
                    self._reads += 1
                    return data
            likely = True
            if not self._wait_readable():
                self.timed_out = True
                return b""

    def _wait_readable(self) -> bool:
        self._reads = 0
        left = None
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                return False
        watcher = self._reader
        if watcher is None:
            watcher = self._reader = gevent.get_hub().loop.io(self.raw.fileno(), _READ)
        watcher.start(self._reading.wake)
        try:
            return self._reading.wait(left) or self._has_arrived()
        finally:
            watcher.stop()

    def _has_arrived(self) -> bool:
        """Return whether there is something to read: this process may have stood still until the deadline."""
        try:
            self.raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        return True

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of ``data``, in one system call if the buffer has space.

        Raises ``OSError``; ``TimeoutError`` if the client took nothing for :data:`WRITE_TIMEOUT_S`, in which case
        closing resets the connection.
        """
        in_time = True
        while True:
            try:
                sent = self.raw.send(data)
            except BlockingIOError:
                sent = 0
                if not in_time:
                    self._reset_on_close()
                    raise TimeoutError(errno.ETIMEDOUT, "the client does not read") from None
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
            # Even if it was too long: the client may have taken something while this process stood still.
            in_time = self._wait_writable()

    def send(self, data: bytes) -> int:
        """Send all of ``data``, and return its length, as simple_websocket expects."""
        self.sendall(data)
        return len(data)

    def _wait_writable(self) -> bool:
        if self._writing is None:
            self._writing = GreenletWaker()
            self._writer = gevent.get_hub().loop.io(self.raw.fileno(), _WRITE)
        watcher = self._writer
        watcher.start(self._writing.wake)
        not_reading[self] = time.monotonic()
        try:
            return self._writing.wait(WRITE_TIMEOUT_S)
        finally:
            watcher.stop()
            del not_reading[self]

    def shutdown(self, how: int) -> None:
        """End one direction or both; raises ``OSError``."""
        self.raw.shutdown(how)

    def cut(self) -> None:
        """Break the connection: a blocked write fails at once. Raises nothing."""
        with contextlib.suppress(OSError):
            self.raw.shutdown(socket.SHUT_RDWR)

    def give_up(self) -> None:
        """Break the connection, and drop what its client has not taken. Raises nothing."""
        with contextlib.suppress(OSError):
            self._reset_on_close()
        self.cut()

    def _reset_on_close(self) -> None:
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def close(self) -> None:
        """Close the connection; raises nothing. Idempotent."""
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = None
        try:
            self.raw.close()
        except OSError as problem:
            logs.get_logger().debug("a connection did not close cleanly", reason=problem.strerror)


def end_oldest_idle(idle: dict[ClientSocket, None]) -> bool:
    """End the connection that has waited longest for a request; return whether there was one. New ones stay."""
    oldest = next((each for each in idle if not each.is_new()), None)
    if oldest is None:
        return False
    del idle[oldest]
    oldest.stop_expecting()
    return True


def end_all_idle(idle: dict[ClientSocket, None]) -> None:
    """End all connections that wait for a request. New ones stay."""
    for each in idle:
        if not each.is_new():
            each.stop_expecting()
