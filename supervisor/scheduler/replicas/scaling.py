"""How many replicas of a model are wanted, between the configured bounds: measured, with hysteresis. Pure.

More when requests wait for long, fewer when one replica less would have sufficed for much longer than that. The number
does not go up and down with a steady load: it goes down only if what ran at once in all of :data:`QUIET_S` would have
fitted into one replica less, and then what runs does not wait for that one.
"""

from __future__ import annotations

import math
from typing import Final

MAX_WAIT_S: Final = 1.0
"""A request that waits longer than this waits for long."""
SLOW_S: Final = 5.0
"""For so long on end, the next request must have waited for long before another replica is wanted."""
QUIET_S: Final = 300.0
"""For so long on end, one replica less must have sufficed before one is not wanted any more."""


class ReplicaScaling:
    """How many replicas are wanted now."""

    def __init__(self, least: int, most: int) -> None:
        """The least number is wanted."""
        self.least, self.most = least, most
        self.wanted = least
        self._slow_since: float | None = None
        self._quiet_since: float | None = None
        self._peak = 0
        """The most slots in use since the last look."""

    def note_busy(self, busy: int) -> None:
        """Note how many slots are in use after a grant: it may end before the next look."""
        self._peak = max(self._peak, busy)

    def take_over(self, running: int) -> None:
        """Want what an earlier supervisor has left running, within the bounds: its reasons may hold still."""
        self.wanted = max(self.least, min(running, self.most))

    def reset(self) -> None:
        """Want the least number again: the model is not loaded any more."""
        self.wanted = self.least
        self._slow_since = self._quiet_since = None

    def observe(self, now: float, *, waited: float, busy: int, slots: int, serving: int) -> None:
        """Note the present load, and decide.

        ``waited``: for how long the next request has waited in seconds, 0 if none waits. ``busy``: the slots in use, of
        all ``slots`` of the replicas that serve. ``serving``: how many of them serve; while that is fewer than are wanted,
        nothing is decided.
        """
        busy, self._peak = max(busy, self._peak), 0
        if serving < self.wanted or not slots:
            self._slow_since = self._quiet_since = None
            return
        self._slow_since = _since(self._slow_since, now, holds=waited > MAX_WAIT_S)
        sufficient = not waited and busy * serving <= slots * (serving - 1)
        self._quiet_since = _since(self._quiet_since, now, holds=sufficient)
        if self._slow_since is not None and now - self._slow_since >= SLOW_S and self.wanted < self.most:
            self.wanted += 1
            self._slow_since = self._quiet_since = None
        elif self._quiet_since is not None and now - self._quiet_since >= QUIET_S and self.wanted > self.least:
            self.wanted -= 1
            self._slow_since = self._quiet_since = None

    @property
    def due_at(self) -> float:
        """When another number is wanted if nothing changes until then; infinite if it stays the same."""
        more = math.inf if self._slow_since is None or self.wanted == self.most else self._slow_since + SLOW_S
        fewer = math.inf if self._quiet_since is None or self.wanted == self.least else self._quiet_since + QUIET_S
        return min(more, fewer)


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    return (now if before is None else before) if holds else None
