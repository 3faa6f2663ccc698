"""A token bucket: so many units a minute, with bursts of as many. Pure: every time is handed in.

It starts full, is filled evenly, and may be in debt: what an answer cost is only known after it.
"""

from __future__ import annotations

from typing import Final

_PERIOD_S: Final = 60.0
_ROUNDING: Final = 1e-6
"""Sums of fractions may be this far below a whole unit."""


class TokenBucket:
    """What is left of a limit. Within any t seconds at most ``per_minute * (1 + t / 60)`` units can be taken."""

    __slots__ = ("_level", "_updated", "per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        """Start full."""
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._updated = now

    def level(self, now: float) -> float:
        """Return what is left, negative for a debt."""
        if now > self._updated:
            filled = (now - self._updated) * self.per_minute / _PERIOD_S
            self._level = min(float(self.per_minute), self._level + filled)
            self._updated = now
        return self._level

    def take(self, units: int, now: float) -> None:
        """Take units, also those that are not there."""
        self._level = self.level(now) - units

    def wait_for(self, units: float, now: float) -> float:
        """Return the seconds until so many units are there; 0: they are."""
        missing = units - self.level(now)
        return missing * _PERIOD_S / self.per_minute if missing > _ROUNDING else 0.0

    def resize(self, per_minute: int, now: float) -> None:
        """Change the limit. What was used up stays used up; of a limit that shrinks, the same part of it.

        Otherwise a key that had used much of a large limit would be in debt for hours under a small one.
        """
        level = self.level(now)
        grown = per_minute - self.per_minute
        self._level = level + grown if grown >= 0 else level * per_minute / self.per_minute
        self.per_minute = per_minute
