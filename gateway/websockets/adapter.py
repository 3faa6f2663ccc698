"""Adapts a client's socket for simple_websocket: whole frames in order, and a time limit for writes.

simple_websocket calls ``send`` from two greenlets, and assumes that every write is complete.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gevent

MAX_WAITING_FRAMES: Final = 64
"""Small frames (pongs) that may wait behind a blocked write."""
_STEP: Final = 64 * 1024


class WebSocketAdapter:
    """One connection."""

    def __init__(self, sock: Any, timeout: float) -> None:
        """Write to ``sock``. A write fails after ``timeout`` seconds without progress."""
        self._sock = sock
        self._timeout = timeout
        self._waiting: deque[bytes] = deque()
        self._writing = False
        self.before_read: Callable[[], bool] | None = None
        """Called before each read, and may wait: returns whether to read on."""

    def fileno(self) -> int:
        """Return the connection's file descriptor."""
        return int(self._sock.fileno())

    def recv(self, size: int) -> bytes:
        """Read; empty at the end of the connection. Raises ``OSError``."""
        if self.before_read is not None and not self.before_read():
            return b""
        data: bytes = self._sock.recv(size)
        return data

    def send(self, data: bytes) -> int:
        """Write all of ``data``, or leave it to the greenlet that is writing. Raises ``OSError``."""
        if self._writing:
            if len(self._waiting) >= MAX_WAITING_FRAMES:
                raise OSError("too much data waits to be written")
            self._waiting.append(data)
            return len(data)
        self._writing = True
        try:
            self._write(data)
            while self._waiting:
                self._write(self._waiting.popleft())
        finally:
            self._writing = False
        return len(data)

    def _write(self, data: bytes) -> None:
        for start in range(0, len(data), _STEP):
            with gevent.Timeout(self._timeout, TimeoutError("the reader is too slow")):
                self._sock.sendall(data[start : start + _STEP])

    def close(self) -> None:
        """Do nothing: the server closes the connection."""

    def finish(self, reader: Any) -> None:
        """End the connection, and wait for the greenlet that reads it: the descriptor may be reused afterwards."""
        for how in (socket.SHUT_WR, socket.SHUT_RDWR):
            with contextlib.suppress(OSError):
                self._sock.shutdown(how)
            reader.join(timeout=1.0)
