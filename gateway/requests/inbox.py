"""What arrived for one attempt and was not written yet: ordered, gapless, bounded. Pure."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.messages.events import Event, EventKind, Outcome, failure_of, outcome_of
from protocol.wire.decoding import DECODE_ERRORS


class Inbox:
    """Collects the events of one attempt into as few writes as the client's speed allows."""

    __slots__ = ("_expected", "_limit", "_pieces", "_size", "_waiting_tokens", "attempt", "outcome", "taken", "tokens")

    def __init__(self, attempt: int, limit: int) -> None:
        """Start empty; ``limit`` bounds the bytes that wait."""
        self.attempt = attempt
        self.outcome: Outcome | None = None
        """Set once DONE arrived: what waits is all there is."""
        self.taken = False
        """Whether bytes were handed on: the attempt can no longer be repeated unseen."""
        self.tokens = 0
        """Tokens in what was handed on."""
        self._limit = limit
        self._expected = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiting_tokens = 0

    def put(self, event: Event) -> Failure | None:
        """Take an event in; return the failure that ends the attempt, if this one does.

        Events of other attempts, after the end, and seen before change nothing.  A gap in the numbers is
        ``events_lost``; more than the limit is ``client_too_slow``.
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
        if kind == EventKind.DELTA:
            self._pieces.append(event.data)
            self._size += len(event.data)
            self._waiting_tokens += event.count
            if self._size > self._limit and (self.taken or len(self._pieces) > 1):
                return Failure(Code.CLIENT_TOO_SLOW, "the client does not read the answer fast enough")
            return None
        try:
            if kind == EventKind.DONE:
                self.outcome = outcome_of(event)
            elif kind == EventKind.FAILED:
                return failure_of(event)
        except DECODE_ERRORS as problem:
            return Failure(Code.LOST, "the end of the answer was unreadable", detail=str(problem))
        return None

    def take(self) -> bytes:
        """Hand on everything that waits, as one piece; empty if nothing does."""
        if not self._pieces:
            return b""
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self.tokens += self._waiting_tokens
        self._waiting_tokens = 0
        self.taken = True
        return piece

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._pieces
