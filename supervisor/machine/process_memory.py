"""Resident memory of running processes, by psutil. Each look costs a system call or two, and never waits."""

from __future__ import annotations

import psutil


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process, including its mapped files; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid else 0
    except (psutil.Error, OSError):
        return 0
