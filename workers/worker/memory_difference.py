"""How far the memory that an engine takes is from what was estimated. Pure.

Only memory that is not pages of files is compared. Pages of files are known from their size, and the kernel may drop some of them.
"""

from __future__ import annotations

from typing import Final

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed

LEAST_GROWTH: Final = 4 << 20
"""A difference that has grown by less is not reported again."""
OUTGROWN: Final = 64 << 20
"""An engine that has taken this much more while it works takes it for a request: a template that never ends takes a gigabyte a second."""


class MemoryDifference:
    """The difference of one engine, in bytes of the host's memory; below zero if it takes less."""

    def __init__(self, estimate: MemoryEstimate, context: int) -> None:
        """``context``: tokens of each slot that the engine has."""
        place = estimate.places.get(HOST, PlaceNeed())
        self._whole = estimate.need(estimate.context or context).get(HOST, 0) - place.mapped
        self._at_start = self._whole - place.lazy
        self.bytes: int | None = None
        """None: nothing was measured."""
        self.outgrown = False
        """Whether it has taken much more while it worked than at its start, beyond what was expected."""
        self._started = 0

    def loading(self, used: int) -> None:
        """Take note of what a loading engine uses. That says little of what it will need, unless it is more than was expected."""
        if used > self._at_start + (self.bytes or 0):
            self.bytes = used - self._at_start

    def started(self, used: int) -> None:
        """Take note of what a ready engine uses. It has touched all but the parts that only work touches."""
        if used:
            self.bytes = self._started = used - self._at_start

    def worked(self, used: int) -> bool:
        """Take note of what a working engine uses; return whether the difference is worth a new report."""
        if self.bytes is None or used - self._whole < self.bytes + LEAST_GROWTH:
            return False
        self.bytes = used - self._whole
        self.outgrown = self.bytes - self._started >= OUTGROWN
        return True
