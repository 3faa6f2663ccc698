"""The part of an answer that has arrived but was not written to the client: ordered, gapless, bounded. Pure."""

from __future__ import annotations

from typing import Final

from protocol.failures import DECODE_ERRORS, Code, Failure
from protocol.messages.events import Event, EventKind, Outcome, failure_of, outcome_of

# As numbers: reading a member of an enumeration takes a lookup in its class, for each token.
_DELTA: Final = int(EventKind.DELTA)
_DONE: Final = int(EventKind.DONE)
_FAILED: Final = int(EventKind.FAILED)
_WARNING: Final = int(EventKind.WARNING)


class Inbox:
    """Collects the events of one attempt into as few writes as the client's speed allows."""

    __slots__ = (
        "_expected",
        "_hold_over",
        "_large",
        "_limit",
        "_pieces",
        "_size",
        "_waiting_tokens",
        "attempt",
        "outcome",
        "taken",
        "tokens",
        "warning",
    )

    def __init__(self, attempt: int, limit: int, hold_over: int = 0) -> None:
        """Start empty. ``limit`` bounds the waiting bytes; beyond ``hold_over`` of them the engine is to wait, 0: it never waits."""
        self.attempt = attempt
        self.outcome: Outcome | None = None
        """Set once DONE has arrived: nothing more follows what waits."""
        self.taken = False
        """Whether bytes were taken: the client may have seen them, so the attempt cannot be repeated."""
        self.tokens = 0
        """Tokens in the bytes that were taken."""
        self.warning = ""
        """A part of the request that has no effect; empty: none is known."""
        self._limit, self._hold_over = limit, hold_over or limit
        self._expected = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._large = 0
        """Bytes of one waiting event that is larger than the limit: this does not show that the client is slow."""
        self._waiting_tokens = 0

    def put(self, event: Event) -> Failure | None:
        """Add an event; return the failure that ends the attempt, if this one does.

        Events of other attempts, events after the end, and events that were received before are ignored. A gap in the numbers is
        ``events_lost``; exceeding the limit is ``client_too_slow``.
        """
        if event.attempt != self.attempt or self.outcome is not None or event.seq < self._expected:
            return None
        if event.seq > self._expected:
            missing = event.seq - self._expected
            return Failure(
                Code.LOST, "part of the answer was lost on the way", detail=f"{missing} events before {event.seq}"
            )
        self._expected += 1
        kind = event.kind
        if kind == _DELTA:
            self._pieces.append(event.data)
            self._size += len(event.data)
            self._waiting_tokens += event.count
            if len(event.data) > self._limit and not self._large:
                self._large = len(event.data)
            if self._size - self._large > self._limit:
                return Failure(Code.CLIENT_TOO_SLOW, "the client does not read the answer fast enough")
            return None
        try:
            if kind == _DONE:
                self.outcome = outcome_of(event)
            elif kind == _FAILED:
                return failure_of(event)
            elif kind == _WARNING:
                self.warning = event.data.decode()
        except DECODE_ERRORS as problem:
            return Failure(Code.LOST, "the end of the answer was unreadable", detail=str(problem))
        return None

    def take(self) -> bytes:
        """Remove everything that waits and return it as one piece; empty if nothing waits."""
        if not self._pieces:
            return b""
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = self._large = 0
        self.tokens += self._waiting_tokens
        self._waiting_tokens = 0
        self.taken = True
        return piece

    def discard(self) -> None:
        """Remove everything that waits."""
        self._pieces.clear()
        self._size = self._large = self._waiting_tokens = 0

    @property
    def tokens_received(self) -> int:
        """Tokens in all bytes so far, taken or waiting."""
        return self.tokens + self._waiting_tokens

    @property
    def crowded(self) -> bool:
        """Whether so much waits that the engine is to wait (backpressure)."""
        return self._size > self._hold_over and self.outcome is None

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._pieces
