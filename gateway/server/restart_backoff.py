"""How long gunicorn's master waits before it forks another worker: longer and longer if workers die at their start. Pure."""

from __future__ import annotations

from typing import Final

EARLY_S: Final = 2.0
"""A worker that dies this soon may die of something that the next one meets as well: no memory, no more processes or threads."""
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0


class RestartBackoff:
    """Counts the starts in a row that failed.

    After the first, the next worker follows at once; then it takes longer and longer.
    """

    def __init__(self) -> None:
        """None has failed yet."""
        self._started: dict[int, float] = {}
        """Pid → when it was forked."""
        self._failures = 0
        self._due = 0.0

    def started(self, pid: int, now: float) -> None:
        """Note that a worker was forked."""
        self._started[pid] = now

    def ended(self, pid: int, now: float) -> float:
        """Note that a worker has ended; return the pause before the next one."""
        if now - self._started.pop(pid, 0.0) >= EARLY_S:
            self._failures = 0
            return 0.0
        return self.failed(now)

    def failed(self, now: float) -> float:
        """Note that a worker could not be forked, or died at its start; return the pause before the next one."""
        self._failures += 1
        pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0
        self._due = max(self._due, now + pause)
        return pause

    def left(self, now: float) -> float:
        """Return in how many seconds a worker may be forked; 0: at once."""
        return max(0.0, self._due - now)
