"""The connections to one engine: opened ahead of need, kept for the next request, all closed together.

Invariant: every open connection is in ``_all``; ``_kept`` has those without a request.
"""

from __future__ import annotations

import socket
from typing import Final

from protocol.runtime.loop import Loop
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.connection import EngineConnection
from workers.engine.connections.engine_socket import EngineSocket, begin_connection
from workers.engine.connections.exchange import EngineExchange, ResponseHandler
from workers.stream.read_batching import ReadBatcher

READ_BUFFER_BYTES: Final = 65_536
KERNEL_BUFFER_BYTES: Final = 256 * 1024
"""What an engine may send while its connection is not read. The kernel's own limit is tens of megabytes, which is an hour of speech."""


class EngineConnectionPool:
    """The connections to one engine."""

    keeps_streams = False
    """Whether a connection is kept after a stream: llama-server closes it anyway."""

    def __init__(self, loop: Loop, port: int, max_kept: int, key: str = "") -> None:
        """Connect to 127.0.0.1:``port`` when there is something to send, with ``key`` as the bearer token, if any.

        At most ``max_kept`` idle connections are kept, because each holds a thread of the engine's HTTP server.
        """
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        self.head = f"Host: 127.0.0.1:{port}\r\n{bearer}"
        """The headers that all requests have."""
        self.loop = loop
        self._max_kept = max_kept
        self.port = port
        self.open = True
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        """Shared by all connections: each passes on what it read before another one reads."""
        self._kept: list[EngineConnection] = []
        self._all: set[EngineConnection] = set()
        self.read_batcher = ReadBatcher(loop)

    def send(self, request: EngineRequest, handler: ResponseHandler) -> EngineExchange:
        """Send a request on a kept connection or a new one. ``handler`` is called from the loop.

        Raises nothing if the connection cannot be opened: the handler is told that it broke.
        """
        exchange = EngineExchange(self.read_batcher, request, handler)
        self.begin(exchange)
        return exchange

    def begin(self, exchange: EngineExchange) -> None:
        """Send the request of an exchange."""
        if self._kept:
            self._kept.pop().send(exchange)
        else:
            self.send_on_new_connection(exchange)

    def open_socket(self) -> tuple[EngineSocket, int]:
        """See :class:`~workers.engine.connections.connection.ConnectionOwner`."""
        opened, error = begin_connection(socket.AF_INET, ("127.0.0.1", self.port))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER_BYTES)
        return opened, error

    def path_of(self, path: str) -> str:
        """Return the path itself."""
        return path

    def send_on_new_connection(self, exchange: EngineExchange) -> None:
        """Send a request on a new connection."""
        connection = EngineConnection(self)
        self._all.add(connection)
        connection.send(exchange)

    def connect_ahead(self) -> None:
        """Have a connection ready for the next request, which often follows soon.

        The engine closes it after some seconds of silence, and then no other is opened. If it cannot be opened, that is
        not a failure: the next request tries again.
        """
        if self.open and not self._kept:
            connection = EngineConnection(self, ahead=True)
            if connection.opened:
                self._all.add(connection)
                self._kept.append(connection)
            else:
                connection.close()

    def keep(self, connection: EngineConnection) -> None:
        """Keep a connection for later."""
        if self.open and len(self._kept) < self._max_kept:
            self._kept.append(connection)
        else:
            connection.close()

    def forget(self, connection: EngineConnection) -> None:
        """Take note that a connection was closed."""
        self._all.discard(connection)
        self.read_batcher.remove(connection)
        if connection in self._kept:
            self._kept.remove(connection)

    def drain(self) -> None:
        """Read what a dead engine had sent, so that complete responses count; send nothing more."""
        self.open = False
        for connection in list(self._all):
            connection.drain()

    def close(self) -> None:
        """Close all connections; no handler is called."""
        self.open = False
        for connection in list(self._all):
            connection.close()
