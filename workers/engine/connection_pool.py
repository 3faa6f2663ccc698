"""The connections to one engine: opened ahead of need, kept, and all ended together."""

from __future__ import annotations

from typing import Final

from protocol.runtime.loop import Loop
from workers.backends.base import EngineRequest
from workers.engine.connection import EngineConnection, EngineExchange, ResponseHandler
from workers.stream.read_batching import ReadBatcher

READ_BUFFER_BYTES: Final = 65_536


class EngineConnectionPool:
    """The connections to one engine."""

    def __init__(self, loop: Loop, port: int, most_kept: int, key: str = "") -> None:
        """Connect to 127.0.0.1:``port`` when there is something to send; ``key``: what the engine wants to see.

        Keep at most ``most_kept`` idle connections: each holds a thread of the engine's HTTP server.
        """
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        self.head = f"Host: 127.0.0.1:{port}\r\n{bearer}"
        """The headers that all requests have."""
        self.loop = loop
        self._most_kept = most_kept
        self.port = port
        self.open = True
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        """Shared by all connections: what is read is passed on before anybody else reads."""
        self._kept: list[EngineConnection] = []
        self._all: set[EngineConnection] = set()
        self.read_batcher = ReadBatcher(loop)

    def send(self, request: EngineRequest, answer: ResponseHandler) -> EngineExchange:
        """Send a request on a kept connection or a fresh one; the answer is told from the loop."""
        exchange = EngineExchange(self, request, answer)
        if self._kept:
            self._kept.pop().send(exchange)
        else:
            self.send_fresh(exchange)
        return exchange

    def send_fresh(self, exchange: EngineExchange) -> None:
        """Send on a fresh connection."""
        connection = EngineConnection(self)
        self._all.add(connection)
        connection.send(exchange)

    def warm(self) -> None:
        """Have a connection ready for the next request: who has had one will soon have another.

        The engine closes it after some seconds of silence, and then there is none.
        """
        if self.open and not self._kept:
            connection = EngineConnection(self, warm=True)
            self._all.add(connection)
            self._kept.append(connection)

    def keep(self, connection: EngineConnection) -> None:
        """Keep a connection for later."""
        if self.open and len(self._kept) < self._most_kept:
            self._kept.append(connection)
        else:
            connection.close()

    def forget(self, connection: EngineConnection) -> None:
        """A connection was closed."""
        self._all.discard(connection)
        self.read_batcher.leave(connection)
        if connection in self._kept:
            self._kept.remove(connection)

    def drain(self) -> None:
        """The engine is dead: read what it had sent, tell the ends, and send nothing any more."""
        self.open = False
        for connection in list(self._all):
            connection.drain()

    def close(self) -> None:
        """Close all connections; nobody is told."""
        self.open = False
        for connection in list(self._all):
            connection.close()
