"""The phases of an attempt, and the table of their changes."""

from __future__ import annotations

import enum
from typing import Final


class AttemptPhase(enum.Enum):
    """The progress of an attempt."""

    WAITING = enum.auto()
    """Its gateway has not subscribed yet; the engine does not know the request."""
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    """Its result is no longer wanted, but the engine may still be working on it."""
    ENDED = enum.auto()

    def changed_to(self, phase: AttemptPhase) -> AttemptPhase:
        """Return the next phase; raises ValueError for a change that an attempt cannot make."""
        if phase not in NEXT_PHASES[self]:
            raise ValueError(f"an attempt cannot go from {self.name} to {phase.name}")
        return phase


NEXT_PHASES: Final[dict[AttemptPhase, frozenset[AttemptPhase]]] = {
    AttemptPhase.WAITING: frozenset({AttemptPhase.RUNNING, AttemptPhase.ENDED}),
    AttemptPhase.RUNNING: frozenset({AttemptPhase.STOPPING, AttemptPhase.ENDED}),
    AttemptPhase.STOPPING: frozenset({AttemptPhase.ENDED}),
    AttemptPhase.ENDED: frozenset(),
}
