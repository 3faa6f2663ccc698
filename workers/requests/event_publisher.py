"""Sends the events that an iteration of the loop has collected, one message for each gateway.

Invariant: events leave at the end of the iteration in which they were put into the outbox, or, while a gateway's
queue is full, ``FLUSH_RETRY_S`` after the last try.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.ids import RequestKey
from protocol.runtime.loop import Loop, Timer
from workers.requests.interfaces import RequestBus
from workers.stream.event_outbox import FLUSH_RETRY_S, EventOutbox


class EventPublisher:
    """Flushes one outbox."""

    def __init__(self, loop: Loop, bus: RequestBus, on_overflow: Callable[[RequestKey], None]) -> None:
        """``on_overflow`` is called with each attempt whose client reads too slowly. Its failure is in the outbox."""
        self._loop, self._on_overflow = loop, on_overflow
        self.outbox = EventOutbox(bus.publish)
        self._retry_timer: Timer | None = None
        loop.after_each_iteration(self._end_iteration)

    def flush(self) -> None:
        """Send what there is. If a gateway's queue is full, try again later."""
        self.outbox.flush()
        if self.outbox.stalled and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(FLUSH_RETRY_S, self._retry)

    def _end_iteration(self) -> None:
        while self.outbox.overflowed:
            self._on_overflow(self.outbox.overflowed.pop())
        self.flush()

    def _retry(self) -> None:
        self._retry_timer = None
        self.outbox.stalled.clear()
        self.flush()
