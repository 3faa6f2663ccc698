"""Why an engine ended, by its exit status and by what the kernel counts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from workers.engine import exit_cause as exit_causes
from workers.engine.exit_cause import ExitCause, exit_cause


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (-signal.SIGSEGV, ExitCause.CRASH),
        (-signal.SIGABRT, ExitCause.CRASH),
        (-signal.SIGILL, ExitCause.CRASH),
        (-signal.SIGBUS, ExitCause.FILE),
        (-signal.SIGFPE, ExitCause.CRASH),
        (128 + signal.SIGSEGV, ExitCause.CRASH),
        (-signal.SIGKILL, ExitCause.KILLED),
        (128 + signal.SIGKILL, ExitCause.KILLED),
        (-signal.SIGTERM, ExitCause.OTHER),
        (128 + signal.SIGTERM, ExitCause.OTHER),
        (signal.SIGSEGV, ExitCause.OTHER),
        (0, ExitCause.OTHER),
        (1, ExitCause.OTHER),
    ],
)
def test_only_what_a_process_does_itself_is_a_crash(code: int, cause: ExitCause) -> None:
    assert exit_cause(code, kill_sent=False, memory_kills=0) is cause


def test_a_kill_is_the_kernels_where_it_has_counted_one() -> None:
    assert exit_cause(-signal.SIGKILL, kill_sent=False, memory_kills=1) is ExitCause.MEMORY
    assert exit_cause(128 + signal.SIGKILL, kill_sent=False, memory_kills=1) is ExitCause.MEMORY
    assert exit_cause(-signal.SIGKILL, kill_sent=True, memory_kills=1) is ExitCause.OTHER
    assert exit_cause(-signal.SIGTERM, kill_sent=False, memory_kills=1) is ExitCause.OTHER


def test_the_counter_of_the_own_group_is_read_before_that_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, machine = tmp_path / "memory.events", tmp_path / "vmstat"
    monkeypatch.setattr(exit_causes, "_kernel_counters", lambda: [group, machine])
    assert exit_causes.memory_kills() == 0, "a kernel without it"
    machine.write_text("pgfault 12\noom_kill 3\nthp_zero 0\n")
    assert exit_causes.memory_kills() == 3
    group.write_text("low 0\noom 5\noom_kill 1\noom_group_kill 0\n")
    assert exit_causes.memory_kills() == 1, "what another container lost is not ours"
