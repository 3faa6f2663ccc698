"""The children of a process, from /proc; the name of a process in `ps`; and how a process ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time


def children(pid: int) -> list[int]:
    """Return the pids of a process's children, including ended ones that wait to be reaped."""
    try:
        found: list[int] = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:  # the process has ended, or the kernel has no such file
        return [each for each in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(each) == pid]
    return found


def set_name(name: str) -> None:
    """Name this process; at most 15 characters."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def parent(pid: int) -> int:
    """Return the pid of a process's parent, 0 if the process is gone."""
    return _stat(pid, 1)


def start_time(pid: int) -> int:
    """Return when a process was started, in ticks since the machine's start; 0 if the process is gone."""
    return _stat(pid, 19)


def age(pid: int) -> float:
    """Return how many seconds a process has existed, 0 if it is gone."""
    started = start_time(pid)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK") if started else 0.0


def _stat(pid: int, field: int) -> int:
    """Return a number from /proc/PID/stat, counted from the process's state; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name of the program, in parentheses, may contain anything.
            return int(file.read().rpartition(")")[2].split()[field])
    except (OSError, IndexError):
        return 0


def describe_status(status: int) -> str:
    """Return how a process ended, from its status as in ``subprocess``: ``exit 1`` or ``SIGKILL``."""
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name
        return f"signal {-status}"
