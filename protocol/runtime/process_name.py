"""The name of a process in `ps`. That of a worker or a job says whether a supervisor has welcomed it.

A new supervisor reads that before any message: a process that was not welcomed has no model and no order, and may still
be importing modules. The keeper, which imports nothing of ours, names itself.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

_WELCOMED: Final = {"worker": "lemonbus-worker", "job": "lemonbus-job"}


def set_name(name: str) -> None:
    """Name this process; at most 15 characters."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")


def note_welcome(role: str) -> None:
    """Note that a supervisor has welcomed this process, a worker or a job."""
    set_name(_WELCOMED[role])


def is_welcomed(pid: int, role: str) -> bool:
    """Return whether a supervisor has welcomed a worker or a job."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return name.rstrip("\n") == _WELCOMED.get(role)
