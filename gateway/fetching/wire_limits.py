"""Limits on what a server may send around an image: interim responses, headers, chunk sizes, trailers.

``http.client`` and urllib3 read these in loops that only the server ends. While bytes are available, such a loop never
waits, and a greenlet that never waits stops its whole process: even the time limit has no effect.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import Any, Final

import gevent
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

MAX_HEAD_BYTES: Final = 64 * 1024
"""Everything before the body."""
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""The body on the wire, which includes chunk sizes: twice the largest image."""
_BUFFER_BYTES: Final = 8192
"""Bytes that are read at once while the head is read.

They are far below its limit, which also counts bytes that are read ahead. Python's own value differs by version.
"""


class WireLimitError(Exception):
    """A server sends more than belongs to an image."""


class _LimitedReader(io.RawIOBase):
    """Reads from a connection up to a number of bytes, and lets other greenlets run each time."""

    def __init__(self, connection: socket.socket, limit: int) -> None:
        self._source = connection.makefile("rb", buffering=0)
        self._left = limit

    def allow(self, limit: int) -> None:
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        gevent.sleep(0)
        count = self._source.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise WireLimitError
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        unlimited, self._reader = self.fp, _LimitedReader(sock, MAX_HEAD_BYTES)
        self.fp = io.BufferedReader(self._reader, _BUFFER_BYTES)
        unlimited.close()

    def begin(self) -> None:
        super().begin()
        self._reader.allow(MAX_BODY_BYTES)


class _LimitedHttpConnection(HTTPConnection):
    response_class = _LimitedResponse


class _LimitedHttpsConnection(HTTPSConnection):
    response_class = _LimitedResponse


class LimitedHttpPool(urllib3.HTTPConnectionPool):
    """The way to an address over HTTP; its requests raise :class:`WireLimitError` too."""

    ConnectionCls = _LimitedHttpConnection


class LimitedHttpsPool(urllib3.HTTPSConnectionPool):
    """The same over HTTPS."""

    ConnectionCls = _LimitedHttpsConnection
