"""Moments of a monotonic clock as dates that stay the same from one report to the next. Pure."""

from __future__ import annotations

from typing import Final

STEP_S: Final = 0.5
"""The clock was set if it differs by more from what the monotonic one says."""


class Dates:
    """The offset between the two clocks: it only changes when the clock is set, not with each reading."""

    def __init__(self) -> None:
        """Know nothing before :meth:`read`."""
        self._offset = 0.0
        self._server_started = 0.0

    def read(self, wall: float, monotonic: float) -> None:
        """Take the time of both clocks at one moment."""
        if abs(wall - monotonic - self._offset) > STEP_S:
            self._offset = wall - monotonic

    def server_started(self, moment: float) -> float:
        """Return when the server started, to the second. The moment comes from another clock, so it is only nearly the same each time."""
        if abs(self.of(moment) - self._server_started) > 1.0:
            self._server_started = round(self.of(moment))
        return self._server_started

    def of(self, moment: float) -> float:
        """Return the Unix time of a moment, to the millisecond."""
        return round(moment + self._offset, 3)
