"""Which request a line of an engine's output belongs to, where that is known: only if one runs, or just ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

LATE_LINE_S: Final = 0.05
"""An engine answers a request first, and prints what was wrong with it afterwards."""


class LineAttribution:
    """Returns the id of the request that a line belongs to."""

    def __init__(self, attempts: Mapping[Any, Any], clock: Callable[[], float]) -> None:
        """``attempts``: the running ones, of :class:`~workers.worker.attempt.Attempt`."""
        self._attempts, self._clock = attempts, clock
        self._last_label = ""
        self._last_until = 0.0

    def ended(self, label: str) -> None:
        """Take note that a request has ended. If two end together, a line after that belongs to neither."""
        now = self._clock()
        self._last_label = "" if now < self._last_until and label != self._last_label else label
        self._last_until = now + LATE_LINE_S

    def __call__(self) -> str | None:
        """Return the id of the request that runs or just ended, empty if there is none, None if several run."""
        if len(self._attempts) > 1:
            return None
        for attempt in self._attempts.values():
            return str(attempt.run.label)
        return self._last_label if self._clock() < self._last_until else ""
