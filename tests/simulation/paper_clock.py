"""A clock on paper: what happens later is in a heap, and time jumps from one event to the next."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class PaperClock:
    """The time in seconds, and what is to be called when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call back in some seconds; at the same moment, first come, first served."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), callback))

    def step(self) -> bool:
        """Let the next event happen; return False if there is none."""
        if not self._due:
            return False
        self.now, _, callback = heapq.heappop(self._due)
        callback()
        return True
