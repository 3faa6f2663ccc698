"""Collects the events of one loop iteration, and sends one message to each gateway.

If a gateway does not read, its queue fills up: then its events stay here, deltas are merged into one, and the flush is
tried again.

Invariants:

* Sequence numbers are assigned when a batch really leaves, so a gap only means loss.
* An attempt has at most one end, and nothing follows it.
* An attempt that keeps more than ``max_bytes`` here, and one event that is larger, is ended; no other attempt is affected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.ids import RequestKey, topic
from protocol.messages.events import Event, EventKind, Outcome, pack_batch
from protocol.runtime.loop import Loop, Timer

FLUSH_RETRY_S: Final = 0.005
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024

Publish = Callable[[bytes, bytes], bool]


class _PendingEvents:
    """The events of one attempt that have not left."""

    __slots__ = ("alive", "count", "end", "large", "parts", "size", "warning")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.large = 0
        """Bytes of one event that is larger than the limit: this does not show that the gateway is slow."""
        self.count = 0
        self.alive = False
        self.warning = ""
        self.end: tuple[EventKind, bytes] | None = None

    def drafts(self) -> list[tuple[EventKind, int, bytes]]:
        """Return the events, without their numbers."""
        drafts: list[tuple[EventKind, int, bytes]] = []
        if self.warning:
            drafts.append((EventKind.WARNING, 0, self.warning.encode()))
        if self.parts:
            drafts.append((EventKind.DELTA, self.count, b"".join(self.parts)))
        elif self.alive and self.end is None:
            drafts.append((EventKind.ALIVE, 0, b""))
        if self.end is not None:
            drafts.append((self.end[0], 0, self.end[1]))
        return drafts


class EventOutbox:
    """The outgoing events of all attempts."""

    def __init__(self, publish: Publish, max_bytes: int = MAX_PENDING_BYTES) -> None:
        """Send with ``publish``, which returns whether the queue took the message."""
        self._publish = publish
        self._max_bytes = max_bytes
        self._pending: dict[str, dict[RequestKey, _PendingEvents]] = {}
        self._numbers: dict[RequestKey, int] = {}
        self.stalled: set[str] = set()
        """Gateways whose queue is full. They are not tried again until the owner, a moment later, empties this set."""
        self.overflowed: list[RequestKey] = []
        """Attempts whose client reads too slowly. Their failure is in the outbox; the owner ends them and empties this list."""

    def opened(self, key: RequestKey) -> None:
        """Begin an attempt: its events are numbered from 0."""
        self._numbers[key] = 0

    def _pending_of(self, key: RequestKey) -> _PendingEvents | None:
        if key not in self._numbers:
            return None
        pending = self._pending.setdefault(key.gateway, {}).setdefault(key, _PendingEvents())
        return pending if pending.end is None else None

    def delta(self, key: RequestKey, data: bytes, count: int) -> None:
        """Add output of the engine."""
        pending = self._pending_of(key)
        if pending is None:
            return
        if len(data) > self._max_bytes and not pending.large:
            pending.large = len(data)
        if pending.size + len(data) - pending.large > self._max_bytes:
            pending.parts.clear()
            pending.size = pending.large = pending.count = 0
            failure = Failure(Code.CLIENT_TOO_SLOW, "the client did not read its answer fast enough")
            pending.end = (EventKind.FAILED, msgspec.msgpack.encode(failure))
            self.overflowed.append(key)
            return
        pending.parts.append(data)
        pending.size += len(data)
        pending.count += count

    def alive(self, key: RequestKey) -> None:
        """Report that the engine makes progress without output."""
        pending = self._pending_of(key)
        if pending is not None:
            pending.alive = True

    def warned(self, key: RequestKey, text: str) -> None:
        """Tell the client that a part of its request has no effect."""
        pending = self._pending_of(key)
        if pending is not None:
            pending.warning = text

    def done(self, key: RequestKey, outcome: Outcome) -> None:
        """End the attempt: its generation is complete."""
        pending = self._pending_of(key)
        if pending is not None:
            pending.end = (EventKind.DONE, msgspec.msgpack.encode(outcome))

    def failed(self, key: RequestKey, failure: Failure) -> None:
        """End the attempt otherwise."""
        pending = self._pending_of(key)
        if pending is not None:
            pending.end = (EventKind.FAILED, msgspec.msgpack.encode(failure))

    def dropped(self, key: RequestKey) -> None:
        """Forget an attempt: its client is gone."""
        self._numbers.pop(key, None)
        of_gateway = self._pending.get(key.gateway)
        if of_gateway is not None:
            of_gateway.pop(key, None)
            if not of_gateway:
                del self._pending[key.gateway]

    def gateway_left(self, gateway: str) -> None:
        """Forget all attempts of a gateway that is gone."""
        self.stalled.discard(gateway)
        for key in self._pending.pop(gateway, {}):
            self._numbers.pop(key, None)

    def flush(self) -> bool:
        """Send all events, except to stalled gateways; return whether nothing is left."""
        for gateway in list(self._pending):
            if gateway not in self.stalled:
                self._flush(gateway, self._pending[gateway])
        return not self._pending

    def _flush(self, gateway: str, attempts: dict[RequestKey, _PendingEvents]) -> None:
        events: list[Event] = []
        for key, pending in attempts.items():
            first = self._numbers[key]
            events += [
                Event(key.number, key.attempt, first + offset, kind, count, data)
                for offset, (kind, count, data) in enumerate(pending.drafts())
            ]
        if events and not self._publish(topic(gateway), pack_batch(events)):
            self.stalled.add(gateway)
            return
        del self._pending[gateway]
        for key, pending in attempts.items():
            if pending.end is not None:
                del self._numbers[key]
            else:
                self._numbers[key] += len(pending.drafts())


class EventPublisher:
    """Sends what an iteration of the loop has put into an outbox.

    Events leave at the end of that iteration, or, while a gateway's queue is full, ``FLUSH_RETRY_S`` after the last try.
    """

    def __init__(self, loop: Loop, publish: Publish, on_overflow: Callable[[RequestKey], None]) -> None:
        """``on_overflow`` is called with each attempt whose client reads too slowly. Its failure is in the outbox."""
        self._loop, self._on_overflow = loop, on_overflow
        self.outbox = EventOutbox(publish)
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
