"""Whose the lines are that an engine prints, where that can be told: of the one request that runs, or just ran. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

LATE_LINE_S: Final = 0.05
"""An engine answers a request first, and then prints what was wrong with it."""


class LineAttribution:
    """Tells the label that a line gets now."""

    def __init__(self, attempts: Mapping[Any, Any], clock: Callable[[], float]) -> None:
        """``attempts``: all that are under way, of :class:`~workers.worker.attempt.Attempt`."""
        self._attempts, self._clock = attempts, clock
        self._last = ""
        self._until = 0.0

    def ended(self, label: str) -> None:
        """Take note that a request has ended. After two at once, a line may be of either."""
        now = self._clock()
        self._last = "" if now < self._until and label != self._last else label
        self._until = now + LATE_LINE_S

    def __call__(self) -> str | None:
        """Return the label of the request under way or just over, empty if there is none, None if there are several."""
        if len(self._attempts) > 1:
            return None
        for attempt in self._attempts.values():
            return str(attempt.run.label)
        return self._last if self._clock() < self._until else ""
