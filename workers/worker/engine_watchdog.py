"""Whether an engine that has work makes progress: by output, processor time, bytes read or memory. Pure.

Invariants:

* An engine that makes progress is never touched, however long a load, a prompt or a generation takes.
* An engine without work is never judged.
* A verdict is final: after ABORT (a core dump tells why it hung) only KILL follows, a second later.
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


class Verdict(enum.Enum):
    """What to do with the engine."""

    FINE = enum.auto()
    ABORT = enum.auto()
    KILL = enum.auto()


class Watchdog:
    """Judges one engine."""

    def __init__(self, silence: float) -> None:
        """Give up on an engine after ``silence`` seconds without progress."""
        self._silence = silence
        self._progress_at: float | None = None
        """When progress was seen last; None while it has no work."""
        self._usage = ProcessUsage()
        self._aborted_at: float | None = None

    def progress(self, now: float) -> None:
        """Take note of output."""
        if self._progress_at is not None:
            self._progress_at = now

    def judge(self, now: float, busy: bool, usage: ProcessUsage | None) -> Verdict:
        """Judge; ``usage`` is what the engine has used so far, None where that means nothing.

        A counter that falls is a sign of life, too: a thread of the engine has ended.
        """
        if self._aborted_at is not None:
            return Verdict.KILL if now - self._aborted_at >= KILL_AFTER_S else Verdict.FINE
        if not busy:
            self._progress_at = None
            return Verdict.FINE
        if self._progress_at is None:
            self._progress_at, self._usage = now, usage or ProcessUsage()
        elif usage is not None and is_progress(self._usage, usage):
            self._progress_at, self._usage = now, usage
        if now - self._progress_at < self._silence:
            return Verdict.FINE
        self._aborted_at = now
        return Verdict.ABORT

    @property
    def fired(self) -> bool:
        """Whether the engine was judged to hang."""
        return self._aborted_at is not None

    def period(self) -> float:
        """Return how often to judge, in seconds."""
        return max(0.05, min(1.0, self._silence / 8))


def is_progress(before: ProcessUsage, after: ProcessUsage) -> bool:
    """Return whether an engine has worked between two readings."""
    return (
        abs(after.cpu_seconds - before.cpu_seconds) >= MIN_CPU_PROGRESS_S
        or abs(after.bytes_read - before.bytes_read) >= MIN_READ_PROGRESS_BYTES
        or abs(after.resident - before.resident) >= MIN_MEMORY_PROGRESS_BYTES
    )
