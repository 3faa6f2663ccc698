"""Whether an engine that has work makes progress, judging by output, processor time, bytes read or memory. Pure.

Invariants:

* An engine that makes progress is never touched, however long a load, a prompt or a generation takes.
* An engine that could not run is not judged: while it waits for a processor, or while the watchdog itself was stopped
  (a paused container or virtual machine, a suspended laptop), no silence is counted.
* An engine without work is never judged.
* A verdict is final: after ABORT (a core dump shows why it hung) only KILL follows, a second later.
"""

from __future__ import annotations

import enum
from typing import Final

from workers.engine.process_usage import ProcessUsage

KILL_AFTER_S: Final = 1.0
MIN_CPU_PROGRESS_S: Final = 0.05
"""Processor time that counts as progress: a stopped process uses none, a sleeping one next to none."""
MIN_READ_PROGRESS_BYTES: Final = 65_536
"""Bytes read that count as progress: an engine that loads a model from a slow disk uses little processor time."""
MIN_MEMORY_PROGRESS_BYTES: Final = 1024 * 1024
"""Change of the resident memory that counts as progress."""


MAX_COUNTED_PERIODS: Final = 2
"""How many periods of silence one judgement counts at most: a longer gap means that the watchdog did not run either."""


class Verdict(enum.Enum):
    """What to do with the engine."""

    FINE = enum.auto()
    ABORT = enum.auto()
    KILL = enum.auto()


class Watchdog:
    """Judges one engine."""

    def __init__(self, silence: float) -> None:
        """Give up on an engine after ``silence`` seconds without progress."""
        self._limit = silence
        self._judged_at: float | None = None
        """When it was judged last; None while it has no work."""
        self._silent = 0.0
        """Seconds without progress in which the engine could have run."""
        self._usage = ProcessUsage()
        self._aborted_at: float | None = None

    def progress(self, now: float) -> None:
        """Take note of output."""
        if self._judged_at is not None:
            self._judged_at, self._silent = now, 0.0

    def judge(self, now: float, busy: bool, usage: ProcessUsage | None) -> Verdict:
        """Judge. ``usage`` is what the engine has used so far; None if that is meaningless.

        A falling counter is also a sign of life: a thread of the engine has ended.
        """
        if self._aborted_at is not None:
            return Verdict.KILL if now - self._aborted_at >= KILL_AFTER_S else Verdict.FINE
        if not busy:
            self._judged_at = None
            return Verdict.FINE
        if self._judged_at is None:
            self._judged_at, self._silent, self._usage = now, 0.0, usage or ProcessUsage()
        elif usage is not None and is_progress(self._usage, usage):
            self._judged_at, self._silent, self._usage = now, 0.0, usage
        else:
            self._silent += min(now - self._judged_at, MAX_COUNTED_PERIODS * self.period())
            self._judged_at = now
        if self._silent < self._limit:
            return Verdict.FINE
        self._aborted_at = now
        return Verdict.ABORT

    @property
    def fired(self) -> bool:
        """Whether the engine was judged to hang."""
        return self._aborted_at is not None

    def period(self) -> float:
        """Return how often to judge, in seconds."""
        return max(0.05, min(1.0, self._limit / 8))


def is_progress(before: ProcessUsage, after: ProcessUsage) -> bool:
    """Return whether an engine has worked between two readings, or would be working now if it had a processor."""
    return (
        after.runnable
        or abs(after.cpu_seconds - before.cpu_seconds) >= MIN_CPU_PROGRESS_S
        or abs(after.bytes_read - before.bytes_read) >= MIN_READ_PROGRESS_BYTES
        or abs(after.resident - before.resident) >= MIN_MEMORY_PROGRESS_BYTES
    )
