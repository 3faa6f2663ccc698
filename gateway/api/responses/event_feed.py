"""The events of a background response on their way to the client that asked for them, if it is still there.

The response does not wait for its client. What a slow client leaves unread is kept up to a limit; then its stream
breaks.
"""

from __future__ import annotations

import errno

from gevent.queue import Empty, Queue

from gateway.api.responses.output.event_stream import ResponseEventWriter
from gateway.http.request_context import RequestContext
from protocol.failures import Code, Failure


class EventFeed:
    """``resp.stream`` of a background response. Iterating yields one or more whole events at a time."""

    def __init__(self, writer: ResponseEventWriter, context: RequestContext, *, limit: int, silence: float) -> None:
        """Begin with the first events of ``writer``; a ping comes after each ``silence`` (seconds).

        ``limit``: bytes that may wait for the client.
        """
        self.writer = writer
        self._context = context
        self._limit, self._silence = limit, silence
        self._pieces: Queue[bytes] = Queue()
        self._waiting = 0
        self._over = False
        """Whether the last piece is in the queue."""
        self._closed = False
        """Whether the client has left."""
        self.recorded = bytearray()
        """All events so far, for clients that resume the stream; empty once there are too many."""
        self._records = True
        self.put(writer.ping())

    def events_with(self, last: bytes) -> bytes:
        """Return all events of a response that ends with ``last``; empty if there are too many to keep."""
        return bytes(self.recorded) + last if self._records else b""

    def put(self, piece: bytes) -> None:
        """Pass on a piece."""
        self._record(piece)
        if self._closed or self._over or not piece:
            return
        self._waiting += len(piece)
        if self._waiting > self._limit:
            self._context.failure = Failure(Code.CLIENT_TOO_SLOW, "the client does not read the answer fast enough")
            self._over = True
            piece = b""
        self._pieces.put(piece)

    def _record(self, piece: bytes) -> None:
        if piece.startswith(b":") or not self._records:
            return
        self.recorded += piece
        if len(self.recorded) > self._limit:
            self._records = False
            self.recorded.clear()

    def end(self, last: bytes) -> None:
        """Pass on the last piece. Without one, the stream breaks."""
        self.put(last)
        if not self._over:
            self._over = True
            if not last:
                self._pieces.put(b"")

    def __iter__(self) -> EventFeed:
        return self

    def __next__(self) -> bytes:
        if self._over and self._pieces.empty():
            raise StopIteration
        try:
            piece: bytes = self._pieces.get(timeout=self._silence)
        except Empty:
            return self.writer.ping()
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "the response goes on without this client")
        self._waiting -= len(piece)
        self._context.last = self._over and self._pieces.empty()
        return piece

    def close(self) -> None:
        """Drop what the client has not read; the response goes on. gunicorn calls this however the connection ended."""
        self._closed = True
        while not self._pieces.empty():
            self._pieces.get()
