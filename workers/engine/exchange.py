"""One request to the engine and its response: what receives the response, and what it may ask of the connection meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from workers.backends.engine_request import EngineRequest
from workers.stream.read_batching import BatchedSource, ReadBatcher

OnResponse = Callable[[int, bytes], None]


class ResponseHandler(Protocol):
    """Receives one response. One of the last four methods ends it; nothing is called after that."""

    def began(self, status: int) -> None:
        """Take the status; the headers are complete."""

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""

    def ended(self, until_close: bool = False) -> None:
        """Note that the response is complete.

        ``until_close``: it had no length and no chunks, so the end of the connection ended it (legal HTTP). HTTP then
        does not show whether it was cut off.
        """

    def broke(self, reason: str) -> None:
        """Take note that the connection ended before the response did."""

    def malformed(self, reason: str) -> None:
        """Take note that the engine sent something that is not HTTP."""

    def crashed(self, error: BaseException) -> None:
        """Take note that this handler raised ``error``: a programming error of ours."""


class BufferedResponse:
    """A :class:`ResponseHandler` that collects a whole response and passes on its status and body; status 0 if it did not arrive."""

    def __init__(self, then: OnResponse) -> None:
        """Call ``then`` once."""
        self._then = then
        self._status = 0
        self._parts: list[bytes] = []

    def began(self, status: int) -> None:
        """Take the status."""
        self._status = status

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(piece)

    def ended(self, until_close: bool = False) -> None:  # noqa: ARG002 - the reader of the body sees whether it is whole
        """Pass on the response."""
        self._then(self._status, b"".join(self._parts))

    def broke(self, reason: str) -> None:
        """Report that no response arrived."""
        self._then(0, reason.encode())

    def malformed(self, reason: str) -> None:
        """Report that no response arrived."""
        self._then(0, reason.encode())

    def crashed(self, error: BaseException) -> None:
        """Leave the error to the loop, which logs it."""
        raise error


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
