"""One request to the engine and its response: what receives the response, and what it may ask of the connection meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from workers.backends.engine_request import EngineRequest
from workers.stream.read_batching import BatchedSource, ReadBatcher

NOTED_HEADERS: Final = frozenset({b"retry-after", b"content-type", b"content-encoding"})
"""Headers of a response that say how to read it, or when to ask again; in lower case."""
OnResponse = Callable[[int, bytes], None]


def seconds_to_wait(headers: Mapping[bytes, bytes]) -> float:
    """Return the seconds after which a server asks for another try; 0: it does not say."""
    seconds = headers.get(b"retry-after", b"")
    return float(seconds) if seconds.isdigit() and len(seconds) < 7 else 0.0


def encoding_of(headers: Mapping[bytes, bytes]) -> str:
    """Return how a response is compressed; empty: it is not."""
    encoding = headers.get(b"content-encoding", b"")[:80].decode("latin-1").lower()
    return "" if encoding == "identity" else encoding


class ResponseHandler(Protocol):
    """Receives one response. One of the last four methods ends it; nothing is called after that."""

    def began(self, status: int) -> None:
        """Take the status; the headers are complete."""

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""

    def trailer(self, name: bytes, value: bytes) -> None:
        """Take a header that follows the body; ``name`` is in lower case."""

    def restart(self) -> bool:
        """Forget what has come of the response, because another server answers from the beginning.

        Return False if a part of it was passed on: then it cannot begin again.
        """

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


MAX_BUFFERED_BYTES: Final = 16 * 1024 * 1024


class ResponseTooLargeError(Exception):
    """A response has more than ``MAX_BUFFERED_BYTES``."""


class BufferedResponse:
    """A :class:`ResponseHandler` that collects a whole response and passes on its status and body.

    The status is 0 if it did not arrive, or has more than ``MAX_BUFFERED_BYTES``.
    """

    def __init__(self, then: OnResponse) -> None:
        """Call ``then`` once."""
        self._then = then
        self._status = 0
        self._parts: list[bytes] = []
        self._size = 0

    def began(self, status: int) -> None:
        """Take the status."""
        self._status = status

    def data(self, piece: bytes) -> None:
        """Take a part of the body; raises :class:`ResponseTooLargeError`, which ends the response."""
        self._size += len(piece)
        if self._size > MAX_BUFFERED_BYTES:
            raise ResponseTooLargeError(f"its answer has more than {MAX_BUFFERED_BYTES} bytes")
        self._parts.append(piece)

    def trailer(self, name: bytes, value: bytes) -> None:
        """Ignore it."""

    def restart(self) -> bool:
        """Forget what has come."""
        self._status, self._parts, self._size = 0, [], 0
        return True

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
        """Report that no response arrived if it was too large; leave any other error to the loop, which logs it."""
        if not isinstance(error, ResponseTooLargeError):
            raise error
        self._then(0, str(error).encode())


class ExchangeConnection(BatchedSource, Protocol):
    """The connection that carries an exchange (``connection.py``)."""

    @property
    def connected(self) -> bool:
        """Whether it can be used: the other side has accepted it, with its encryption if it has one."""

    @property
    def sent_at(self) -> float:
        """When a part of a request was last sent; 0: never."""

    def close(self) -> None:
        """Close the socket; no handler is called."""


class EngineExchange:
    """One request and its response."""

    def __init__(self, read_batcher: ReadBatcher, request: EngineRequest, handler: ResponseHandler) -> None:
        """Created by :meth:`workers.engine.connections.connection_pool.EngineConnectionPool.send`."""
        self._read_batcher = read_batcher
        self.request = request
        self.handler = handler
        self.connection: ExchangeConnection | None = None
        self.headers: dict[bytes, bytes] = {}
        """Those of the response that are in ``NOTED_HEADERS``."""

    def allow_batched_reads(self) -> None:
        """Let the rest of the response be read in batches: its first token has been sent."""
        if self.connection is not None:
            self._read_batcher.add_stream(self.connection)

    def read_immediately(self) -> None:
        """Read what has arrived and all that follows at once, even if the request was sent as a patient one."""
        if self.connection is not None:
            self.connection.set_low_water(1)

    def hold(self, on: bool) -> None:
        """Read no more of the response, or go on."""
        if self.connection is not None:
            self._read_batcher.hold(self.connection, on)

    def cancel(self) -> None:
        """Close the connection; the handler is not called any more."""
        if self.connection is not None:
            self.connection.close()


def request_bytes(request: EngineRequest, path: str, headers: str) -> bytes:
    """Return a request as HTTP/1.1. ``headers``: those that all requests to this engine have."""
    head = f"{request.method} {path} HTTP/1.1\r\n{headers}"
    if request.via:
        head += f"Via: {request.via}\r\n"
    if request.method == "POST":
        head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
    if request.patient:
        # The end of the connection ends the wait; not all engines close it themselves after a stream.
        head += "Connection: close\r\n"
    return b"".join((head.encode(), b"\r\n", request.body))
