"""Turns of conversations that share their beginnings, and the memory that they take. Pure.

Invariants:

* A turn is in memory while a stored response, or a later turn, refers to it. It is counted once.
* The byte count covers all turns in memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from protocol.messages.responses import StoredTurn

TURN_OVERHEAD: Final = 1024
"""Approximate bytes that a turn takes besides its JSON."""


class Turn:
    """One request and its response, and what came before."""

    __slots__ = ("api_key", "previous", "references", "stored", "total")

    def __init__(self, stored: StoredTurn, previous: Turn | None, api_key: str = "") -> None:
        """Continue ``previous``, which has the same API key."""
        self.stored = stored
        self.api_key = api_key
        self.previous = previous
        self.references = 0
        """How many stored responses and later turns refer to it."""
        self.total: int = turn_size(stored) + (previous.total if previous else 0)
        """Bytes of the whole conversation up to here."""


def turn_size(stored: StoredTurn) -> int:
    """Return the bytes of a turn."""
    return len(stored.input) + len(stored.response) + TURN_OVERHEAD


class Turns:
    """All turns in memory."""

    def __init__(self) -> None:
        """Begin with none."""
        self.size = 0
        """Bytes of all of them."""
        self.sizes: Counter[str] = Counter()
        """Bytes of those of each API key."""

    def add(self, stored: StoredTurn, previous: Turn | None, api_key: str = "") -> Turn:
        """Return a new turn with one reference."""
        turn = Turn(stored, previous, api_key)
        turn.references = 1
        if previous is not None:
            previous.references += 1
        self._count(turn, turn_size(stored))
        return turn

    def replace(self, turn: Turn, response: bytes) -> None:
        """Give its final response to a turn that nothing continues yet."""
        before = turn_size(turn.stored)
        turn.stored = StoredTurn(turn.stored.input, response)
        grown = turn_size(turn.stored) - before
        turn.total += grown
        self._count(turn, grown)

    def release(self, turn: Turn | None) -> None:
        """Remove one reference. With the last one, remove the turn, and so on to the beginning of its conversation."""
        while turn is not None:
            turn.references -= 1
            if turn.references:
                return
            self._count(turn, -turn_size(turn.stored))
            turn = turn.previous

    def _count(self, turn: Turn, size: int) -> None:
        self.size += size
        self.sizes[turn.api_key] += size
        if not self.sizes[turn.api_key]:
            del self.sizes[turn.api_key]


def conversation(turn: Turn) -> list[StoredTurn]:
    """Return the turns up to this one, oldest first."""
    turns = []
    at: Turn | None = turn
    while at is not None:
        turns.append(at.stored)
        at = at.previous
    return turns[::-1]
