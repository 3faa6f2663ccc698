"""A token bucket: a number of units a minute, with bursts of the same size. Pure: times are arguments.

It starts full, is filled evenly, and may be in debt, because the cost of an answer is known only afterwards.
"""

from __future__ import annotations

from typing import Final

_PERIOD_S: Final = 60.0
_ROUNDING: Final = 1e-6
"""Rounding errors may leave sums this far below a whole unit."""


class TokenBucket:
    """The remainder of a limit. Within any t seconds at most ``per_minute * (1 + t / 60)`` units can be taken."""

    __slots__ = ("_level", "_updated", "per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        """Start full."""
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._updated = now

    @property
    def state(self) -> tuple[int, float, float]:
        """The limit, what is left of it, and when that was so, for the next supervisor: all use the same clock."""
        return self.per_minute, self._level, self._updated

    @classmethod
    def restored(cls, per_minute: int, level: float, updated: float) -> TokenBucket:
        """Return the bucket of an earlier supervisor."""
        bucket = cls(per_minute, updated)
        bucket._level = level
        return bucket

    def level(self, now: float) -> float:
        """Return what is left, negative for a debt."""
        if now > self._updated:
            filled = (now - self._updated) * self.per_minute / _PERIOD_S
            self._level = min(float(self.per_minute), self._level + filled)
            self._updated = now
        return self._level

    def take(self, units: int, now: float) -> None:
        """Take units, even more than there are."""
        self._level = self.level(now) - units

    def wait_for(self, units: float, now: float) -> float:
        """Return the seconds until this many units are there; 0: they are."""
        missing = units - self.level(now)
        return missing * _PERIOD_S / self.per_minute if missing > _ROUNDING else 0.0

    def resize(self, per_minute: int, now: float) -> None:
        """Change the limit. What was used up stays used up, in proportion if the limit shrinks.

        Otherwise a key that had used much of a large limit would be in debt for hours under a small one.
        """
        level = self.level(now)
        grown = per_minute - self.per_minute
        self._level = level + grown if grown >= 0 else level * per_minute / self.per_minute
        self.per_minute = per_minute
