"""One request to the engine and its response, as attempts see them: what an attempt may ask of the connection meanwhile."""

from __future__ import annotations

from typing import Protocol

from workers.backends.engine_request import EngineRequest
from workers.engine.response_handler import ResponseHandler
from workers.stream.read_batching import BatchedSource, ReadBatcher


class ExchangeConnection(BatchedSource, Protocol):
    """The connection that carries an exchange (``connection.py``)."""

    def close(self) -> None:
        """Close the socket; no handler is called."""


class EngineExchange:
    """One request and its response."""

    def __init__(self, read_batcher: ReadBatcher, request: EngineRequest, handler: ResponseHandler) -> None:
        """Created by :meth:`workers.engine.connection_pool.EngineConnectionPool.send`."""
        self._read_batcher = read_batcher
        self.request = request
        self.handler = handler
        self.connection: ExchangeConnection | None = None

    def allow_batched_reads(self) -> None:
        """Let the rest of the response be read in batches: its first token has been sent."""
        if self.connection is not None:
            self._read_batcher.add_stream(self.connection)

    def read_immediately(self) -> None:
        """Read what has arrived and all that follows at once, even if the request was sent as a patient one."""
        if self.connection is not None:
            self.connection.set_low_water(1)

    def cancel(self) -> None:
        """Close the connection; the handler is not called any more."""
        if self.connection is not None:
            self.connection.close()
