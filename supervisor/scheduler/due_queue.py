"""What is to be looked at: models or nodes that have changed since the last look, and those for which it is time. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

NEVER_DUE: Final = math.inf
_MOST_STALE: Final = 256
"""So many times that no longer hold may be in the heap beside as many as hold."""


class Looked(Protocol):
    """What can be looked at."""

    serial: int
    """The order in which it was added; no other one has the same."""
    wake_at: float
    """When it is to be looked at even if it does not change. Only the queue sets it."""


T = TypeVar("T", bound=Looked)


class DueQueue(Generic[T]):
    """A look costs as much as what is due, however much there is besides."""

    def __init__(self) -> None:
        """Nothing is due."""
        self._changed: dict[int, T] = {}
        self._timers: list[tuple[float, int, T]] = []
        """A heap, with some times that no longer hold: a model that is used has another idle time after each request."""
        self._most_timers = _MOST_STALE

    def changed(self, one: T) -> None:
        """Let the next look include this one."""
        self._changed[one.serial] = one

    @property
    def pending(self) -> Iterable[T]:
        """What has changed since the last look."""
        return self._changed.values()

    def due(self, now: float) -> Iterable[T]:
        """Return what the next look will give."""
        while self._timers and self._timers[0][0] <= now:
            at, _, one = heapq.heappop(self._timers)
            if one.wake_at == at:
                one.wake_at = NEVER_DUE
                self.changed(one)
        return self.pending

    @contextmanager
    def look(self, now: float) -> Iterator[list[T]]:
        """Give what is due, in the order in which it was added. If the look fails, it is due again."""
        self.due(now)
        due, self._changed = self._changed, {}
        try:
            yield sorted(due.values(), key=_serial)
        except BaseException:
            self._changed = {**due, **self._changed}
            raise

    def look_again(self, one: T, at: float) -> None:
        """Look at one at a time, even if it does not change. This replaces what was said of it before."""
        if one.wake_at != at:
            one.wake_at = at
            if at < NEVER_DUE:
                heapq.heappush(self._timers, (at, one.serial, one))
                if len(self._timers) > self._most_timers:
                    self._drop_stale()

    def _drop_stale(self) -> None:
        self._timers = [timer for timer in self._timers if timer[2].wake_at == timer[0]]
        heapq.heapify(self._timers)
        self._most_timers = 2 * len(self._timers) + _MOST_STALE

    def with_changed(self, some: Iterable[T]) -> list[T]:
        """Return these and what has changed since the look began, in the order in which they were added."""
        return sorted({one.serial: one for one in (*some, *self._changed.values())}.values(), key=_serial)


def _serial(one: Looked) -> int:
    return one.serial
