"""How an engine ended, and why: from its exit status and from what the kernel has killed meanwhile."""

from __future__ import annotations

import enum
import signal
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from protocol.runtime import control_groups

CRASH_SIGNALS: Final = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}
)
_SHELL_SIGNAL_BASE: Final = 128
"""A shell whose program was killed by signal N exits with 128 + N."""
_MACHINE_COUNTERS: Final = Path("/proc/vmstat")


class ExitCause(enum.Enum):
    """Why an engine ended, according to its exit status and the kernel's counters."""

    CRASH = enum.auto()
    """A signal that a process gets for something it did itself."""
    FILE = enum.auto()
    """SIGBUS: a file that it has mapped, such as the model's, was truncated or could not be read. No request does that."""
    MEMORY = enum.auto()
    """The kernel killed it because memory ran out."""
    KILLED = enum.auto()
    """Something outside lemonbus killed it; daemons that watch the memory do so before the kernel does."""
    OTHER = enum.auto()


class EngineExit(NamedTuple):
    """How an engine ended."""

    reason: str
    """``was killed by SIGSEGV``, ``exited with code 1``."""
    output: str
    """Its last lines of output, for administrators."""
    cause: ExitCause
    over_limit: bool = False
    """Whether the kernel has killed a process of it because the limit of its control group was reached."""


def exit_cause(code: int, *, kill_sent: bool, memory_kills: int) -> ExitCause:
    """Return why a process ended with ``code``, negative for a signal. ``memory_kills``: how many the kernel has killed meanwhile."""
    number = -code if code < 0 else code - _SHELL_SIGNAL_BASE
    if number in CRASH_SIGNALS:
        return ExitCause.CRASH
    if number == signal.SIGBUS:
        return ExitCause.FILE
    if number == signal.SIGKILL and not kill_sent:
        return ExitCause.MEMORY if memory_kills else ExitCause.KILLED
    return ExitCause.OTHER


def memory_kills() -> int:
    """Return how many processes of our control group, or else of this machine, the kernel has killed because memory ran out."""
    counts = (control_groups.counter(file, "oom_kill") for file in _kernel_counters())
    return next((count for count in counts if count is not None), 0)


@cache
def _kernel_counters() -> list[Path]:
    """Return the files that may have the number, best first: the machine's own also counts what other containers lose."""
    groups = control_groups.find_cgroups(Path("/"))[:1]
    return [group.path / name for group in groups for name in control_groups.KILL_COUNTERS] + [_MACHINE_COUNTERS]


def signal_name(number: int) -> str:
    """Return a signal's name, or its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
