"""The name of a process in `ps`. A job's name says that it has begun: a new supervisor reads it before any message.

The keeper, which imports nothing of ours, names itself.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

JOB_AT_WORK: Final = "lemonbus-job"
"""Name of a job that a supervisor has welcomed. Before that, it is still importing modules and has no order."""


def set_name(name: str) -> None:
    """Name this process; at most 15 characters."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")


def name_of(pid: int) -> str:
    """Return the name of a process, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except OSError:
        return ""
