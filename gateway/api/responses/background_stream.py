"""The streams of a background response: its events for the client that asked for them, and again for ``GET responses/{id}``.

The response does not wait for its client. What a slow client leaves unread is kept up to a limit; then its stream breaks.

The process that runs the response has its events in memory, and stores them with the supervisor at its end. In that
process, a resumed stream continues with the response; in any other, it waits for the end.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final

import gevent
from gevent.queue import Empty, Queue

from gateway.api.common import server_sent_events as sse
from gateway.api.responses import stored_form
from gateway.api.responses.output.event_stream import ResponseEventWriter
from gateway.http.request_context import RequestContext
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.responses import ResponseState, StoredResponse

EVENT_END: Final = b"\n\n"
HERE_S: Final = 0.05
"""Seconds between two looks at a response that this process runs."""
ELSEWHERE_S: Final = 0.5
"""The same for one that another process runs: each look is a call to the supervisor."""


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


class ResumedStream:
    """``resp.stream`` with the events from any number on. Iterating yields one or more whole events at a time."""

    media_type: Final = sse.MEDIA_TYPE

    def __init__(
        self,
        context: RequestContext,
        read: Callable[[], StoredResponse],
        running_here: Callable[[], EventFeed | None],
        starting_after: int,
        silence: float,
    ) -> None:
        """``read`` asks the supervisor for the response. ``running_here``: its events, if this process runs it.

        ``silence``: seconds after which a comment is written. Raises ``not_found``, or ``invalid_request`` for a
        response that was not streamed.
        """
        self._context, self._read, self._running_here = context, read, running_here
        self._silence = silence
        self._first = starting_after + 1
        """Number of the first event that is written."""
        self._number = 0
        """Number of the next event; they are numbered from 0."""
        self._offset = 0
        """Offset of its beginning."""
        self._over = False
        if stored_form.events_of(read().turns[-1]) is None:
            reason = "`stream`: only a background response that was requested as a stream can be streamed again; ask without `stream`"
            raise invalid(reason, "stream")

    def __iter__(self) -> ResumedStream:
        return self

    def __next__(self) -> bytes:
        if self._over:
            raise StopIteration
        until = time.monotonic() + self._silence
        while time.monotonic() < until:
            if (failure := self._context.withdrawal("")) is not None:
                raise self._broken(failure.message)
            feed = self._running_here()
            piece = self._further(feed.recorded) if feed is not None else self._stored()
            if piece or self._over:
                self._context.last = self._over
                return piece
            gevent.sleep(HERE_S if feed is not None else ELSEWHERE_S)
        return sse.PING

    def _stored(self) -> bytes:
        """Return the rest of a response that has ended, or nothing while it still runs."""
        try:
            stored = self._read()
        except LemonbusError as problem:
            raise self._broken(problem.failure.message) from problem
        if stored.state is ResponseState.RUNNING:
            return b""
        self._over = True
        events = stored_form.events_of(stored.turns[-1])
        if events:
            return self._further(events)
        return stored_form.last_event(stored, max(self._number, self._first))

    def _further(self, events: bytes | bytearray) -> bytes:
        """Return the new part of all events so far."""
        while self._number < self._first:
            end = events.find(EVENT_END, self._offset)
            if end < 0:
                return b""
            self._offset = end + len(EVENT_END)
            self._number += 1
        piece = bytes(events[self._offset :])
        self._offset += len(piece)
        self._number += piece.count(EVENT_END)
        return piece

    def _broken(self, reason: str) -> ConnectionResetError:
        return ConnectionResetError(errno.ECONNRESET, reason)

    def close(self) -> None:
        """Do nothing: the response goes on."""
