"""When an engine counts as hanging, as tables of readings."""

from __future__ import annotations

import pytest

from workers.engine.process_usage import ProcessUsage
from workers.worker.engine_watchdog import (
    MIN_MEMORY_PROGRESS_BYTES,
    MIN_READ_PROGRESS_BYTES,
    Verdict,
    Watchdog,
    is_progress,
)

F, ABORT, KILL = Verdict.FINE, Verdict.ABORT, Verdict.KILL

# (time, busy, cpu seconds, output came just before, verdict)
Step = tuple[float, bool, float | None, bool, Verdict]
HISTORIES: dict[str, list[Step]] = {
    "an engine without work never hangs": [(0, False, 1, False, F), (100, False, 1, False, F)],
    "busy and silent": [(0, True, 1, False, F), (9, True, 1, False, F), (10, True, 1, False, ABORT)],
    "killed a second later": [(0, True, 1, False, F), (10, True, 1, False, ABORT), (10.5, True, 1, False, F), (11, True, 1, False, KILL)],
    "output is progress": [(0, True, 1, False, F), (9, True, 1, True, F), (18, True, 1, False, F), (19, True, 1, False, ABORT)],
    "processor time is progress": [(0, True, 1, False, F), (9, True, 2, False, F), (18, True, 2, False, F), (19, True, 2, False, ABORT)],
    "a counter that falls is progress": [(0, True, 2, False, F), (9, True, 1, False, F), (18, True, 1, False, F), (19, True, 1, False, ABORT)],
    "very little processor time is none": [(0, True, 1, False, F), (5, True, 1.01, False, F), (10, True, 1.02, False, ABORT)],
    "usage that means nothing": [(0, True, None, False, F), (10, True, None, False, ABORT)],
    "silence begins with the work": [(0, False, 1, False, F), (50, True, 1, False, F), (59, True, 1, False, F), (60, True, 1, False, ABORT)],
}  # fmt: skip


class Judged:
    """A watchdog with a limit of ten seconds, which checks every second, as its owner's timer does."""

    def __init__(self) -> None:
        self.watchdog = Watchdog(10.0)
        self._now: float = 0
        self._last: tuple[bool, ProcessUsage | None] = (False, None)

    def judge(self, now: float, busy: bool, usage: ProcessUsage | None) -> Verdict:
        """Check at ``now``, and every second before it with the former reading."""
        while (self._now + 1) < now:
            self._now += 1
            verdict = self.watchdog.judge(self._now, *self._last)
            assert verdict is F, f"already at {self._now}: {verdict}"
        self._now, self._last = now, (busy, usage)
        return self.watchdog.judge(now, busy, usage)


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_watchdog(history: list[Step]) -> None:
    judged = Judged()
    for now, busy, cpu, output, verdict in history:
        usage = None if cpu is None else ProcessUsage(cpu)
        if output:
            judged.judge(now, busy, usage)
            judged.watchdog.progress(now)
        assert judged.judge(now, busy, usage) is verdict


def test_bytes_read_are_progress() -> None:
    judged = Judged()
    for seconds in range(0, 100, 9):
        assert judged.judge(seconds, True, ProcessUsage(1.0, seconds * MIN_READ_PROGRESS_BYTES)) is F
    assert judged.judge(108, True, ProcessUsage(1.0, 99 * MIN_READ_PROGRESS_BYTES + 1)) is F
    few = 99 * MIN_READ_PROGRESS_BYTES + MIN_READ_PROGRESS_BYTES // 2
    assert judged.judge(109, True, ProcessUsage(1.0, few)) is ABORT


def test_an_engine_that_waits_for_a_processor_is_not_judged() -> None:
    judged = Judged()
    for now in range(100):
        assert judged.judge(now, True, ProcessUsage(1.0, runnable=True)) is F
    assert judged.judge(100, True, ProcessUsage(1.0)) is F
    assert judged.judge(108, True, ProcessUsage(1.0)) is F
    assert judged.judge(109, True, ProcessUsage(1.0)) is ABORT


def test_a_pause_of_the_whole_machine_does_not_count_as_silence_of_the_engine() -> None:
    watchdog = Watchdog(10.0)
    for now in (0, 1, 2, 3000, 3001, 3002, 3003):
        assert watchdog.judge(now, True, ProcessUsage(1.0)) is F
    verdicts = [watchdog.judge(now, True, ProcessUsage(1.0)) for now in range(3004, 3008)]
    assert verdicts == [F, F, ABORT, KILL], "two seconds before the pause count, two of the pause, and those after it"


@pytest.mark.parametrize(
    ("before", "after", "progress"),
    [
        (ProcessUsage(1.0, 5, 7), ProcessUsage(1.0, 5, 7), False),
        (ProcessUsage(1.0), ProcessUsage(1.1), True),
        (ProcessUsage(1.0), ProcessUsage(1.01), False),
        (ProcessUsage(bytes_read=0), ProcessUsage(bytes_read=MIN_READ_PROGRESS_BYTES), True),
        (ProcessUsage(resident=0), ProcessUsage(resident=MIN_MEMORY_PROGRESS_BYTES), True),
        (ProcessUsage(resident=0), ProcessUsage(resident=4096), False),
    ],
)
def test_what_counts_as_progress(before: ProcessUsage, after: ProcessUsage, progress: bool) -> None:
    assert is_progress(before, after) is progress
    assert is_progress(after, before) is progress
