"""What is to be told to the gateways: collected during a turn, sent as one message a gateway at its end. Pure.

A gateway that does not read fills its queue: then its events stay here, deltas melt into one, and the flush is
tried again.  An attempt that has more than its share here is ended, it alone.  Numbers are given when a batch
really leaves, so that a gap means loss and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.ids import RequestKey, topic
from protocol.messages.events import Event, EventKind, Outcome, pack_batch

FLUSH_RETRY_S: Final = 0.005
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024

Publish = Callable[[bytes, bytes], bool]


class _PendingEvents:
    """What one attempt still has to say."""

    __slots__ = ("alive", "count", "end", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.count = 0
        self.alive = False
        self.end: tuple[EventKind, bytes] | None = None

    def drafts(self) -> list[tuple[EventKind, int, bytes]]:
        """Return the events, without their numbers."""
        drafts: list[tuple[EventKind, int, bytes]] = []
        if self.parts:
            drafts.append((EventKind.DELTA, self.count, b"".join(self.parts)))
        elif self.alive and self.end is None:
            drafts.append((EventKind.ALIVE, 0, b""))
        if self.end is not None:
            drafts.append((self.end[0], 0, self.end[1]))
        return drafts


class EventOutbox:
    """The outgoing events of all attempts."""

    def __init__(self, publish: Publish, most_bytes: int = MAX_PENDING_BYTES) -> None:
        """Send through ``publish``, which says whether the message was taken."""
        self._publish = publish
        self._most_bytes = most_bytes
        self._pending: dict[str, dict[RequestKey, _PendingEvents]] = {}
        self._numbers: dict[RequestKey, int] = {}
        self.stalled: set[str] = set()
        """Gateways whose queue is full: left alone until the owner, a moment later, empties this set."""
        self.overflowed: list[RequestKey] = []
        """Attempts whose reader is too slow: told so, and to be ended by the owner, who empties this list."""

    def opened(self, key: RequestKey) -> None:
        """Number the attempt's events from 0."""
        self._numbers[key] = 0

    def _of(self, key: RequestKey) -> _PendingEvents | None:
        if key not in self._numbers:
            return None
        pending = self._pending.setdefault(key.gateway, {}).setdefault(key, _PendingEvents())
        return pending if pending.end is None else None

    def delta(self, key: RequestKey, data: bytes, count: int) -> None:
        """Add output of the engine."""
        pending = self._of(key)
        if pending is None:
            return
        # One event may be larger than any share: it is the second one that nobody fetches which is too much.
        if pending.size and pending.size + len(data) > self._most_bytes:
            pending.parts.clear()
            pending.size = pending.count = 0
            failure = Failure(Code.CLIENT_TOO_SLOW, "the client did not read its answer fast enough")
            pending.end = (EventKind.FAILED, msgspec.msgpack.encode(failure))
            self.overflowed.append(key)
            return
        pending.parts.append(data)
        pending.size += len(data)
        pending.count += count

    def alive(self, key: RequestKey) -> None:
        """Tell that the engine makes progress without output."""
        pending = self._of(key)
        if pending is not None:
            pending.alive = True

    def done(self, key: RequestKey, outcome: Outcome) -> None:
        """End the attempt: its generation is complete."""
        pending = self._of(key)
        if pending is not None:
            pending.end = (EventKind.DONE, msgspec.msgpack.encode(outcome))

    def failed(self, key: RequestKey, failure: Failure) -> None:
        """End the attempt otherwise."""
        pending = self._of(key)
        if pending is not None:
            pending.end = (EventKind.FAILED, msgspec.msgpack.encode(failure))

    def dropped(self, key: RequestKey) -> None:
        """Nobody wants to hear of the attempt any more."""
        self._numbers.pop(key, None)
        of_gateway = self._pending.get(key.gateway)
        if of_gateway is not None:
            of_gateway.pop(key, None)
            if not of_gateway:
                del self._pending[key.gateway]

    def gateway_left(self, gateway: str) -> None:
        """Nobody is there to hear anything of a whole gateway."""
        self.stalled.discard(gateway)
        for key in self._pending.pop(gateway, {}):
            self._numbers.pop(key, None)

    def flush(self) -> bool:
        """Send what there is, but not to the stalled; return whether nothing is left."""
        for gateway in list(self._pending):
            if gateway not in self.stalled:
                self._flush(gateway, self._pending[gateway])
        return not self._pending

    def _flush(self, gateway: str, attempts: dict[RequestKey, _PendingEvents]) -> None:
        events: list[Event] = []
        for key, pending in attempts.items():
            first = self._numbers[key]
            events += [
                Event(key.number, key.attempt, first + place, kind, count, data)
                for place, (kind, count, data) in enumerate(pending.drafts())
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
