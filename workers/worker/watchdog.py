"""Whether an engine is alive: progress by an event, by prefill, or by processor time. Pure.

A generation or prefill that makes progress is never touched, however long it takes.  An engine that is busy and
silent is asked to abort (a core tells why), and a second later it is killed.
"""

from __future__ import annotations

import enum
from typing import Final

KILL_AFTER_S: Final = 1.0
MIN_CPU_PROGRESS_S: Final = 0.05
"""Processor time that counts as work: a stopped process uses none, a sleeping one next to none."""


class Verdict(enum.Enum):
    """What to do about the engine."""

    FINE = enum.auto()
    ABORT = enum.auto()
    KILL = enum.auto()


class Watchdog:
    """Watches one engine."""

    def __init__(self, silence: float) -> None:
        """Bark after ``silence`` seconds without progress."""
        self._silence = silence
        self._since: float | None = None
        self._cpu = 0.0
        self._aborted: float | None = None

    def progress(self, now: float) -> None:
        """The engine said something."""
        if self._since is not None:
            self._since = now

    def look(self, now: float, busy: bool, cpu: float | None) -> Verdict:
        """Judge; ``cpu`` is the processor time of the engine's threads so far, None where it means nothing.

        It falls when a thread ends, which is a sign of life, too.
        """
        if self._aborted is not None:
            return Verdict.KILL if now - self._aborted >= KILL_AFTER_S else Verdict.FINE
        if not busy:
            self._since = None
            return Verdict.FINE
        if self._since is None:
            self._since, self._cpu = now, cpu or 0.0
        elif cpu is not None and abs(cpu - self._cpu) >= MIN_CPU_PROGRESS_S:
            self._since, self._cpu = now, cpu
        if now - self._since < self._silence:
            return Verdict.FINE
        self._aborted = now
        return Verdict.ABORT

    @property
    def fired(self) -> bool:
        """Whether the engine was judged to hang."""
        return self._aborted is not None

    def period(self) -> float:
        """Return how often to look."""
        return max(0.05, min(1.0, self._silence / 8))
