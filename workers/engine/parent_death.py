"""Binds a child process to the process that starts it: when that dies, the kernel kills the child.

``setpriv`` of util-linux does this in 1 ms, and a shell then looks in another one whether the parent has died before: the
kernel tells a child only of deaths that follow. Without ``setpriv``, a Python that calls prctl(2), looks and then becomes the
program does it in 20 ms. Neither keeps memory. A function between fork and exec is not used: the worker has ZeroMQ threads,
and such a function might wait for a lock that one of them held.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

_UNLESS_ORPHANED: Final = '[ "$PPID" = "$0" ] && exec "$@"'
"""For a shell. Arguments: as below. A shell passes on only variables that it could have itself, as sections may set."""
_BECOME: Final = """
import ctypes, os, sys
parent, program = int(sys.argv[1]), sys.argv[2:]
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
try:
    os.execvp(program[0], program)
except OSError as problem:
    sys.exit(f"{program[0]}: {problem.strerror}")
"""
"""Arguments: the parent's pid, then the program and its arguments. If the parent is already dead, nothing is run."""


def find_setpriv(path: str | None = None) -> str | None:
    """Return the ``setpriv`` of util-linux on ``path`` (default: PATH), if there is one; busybox's has no such option."""
    found = shutil.which("setpriv", path=path)
    return found if found and Path(found).resolve().name == "setpriv" else None


def bound_to_this_process(command: list[str], setpriv: str | None) -> list[str]:
    """Return the command that runs ``command`` and is killed when the calling thread ends, however early. Its pid stays the same."""
    if setpriv:
        return [setpriv, "--pdeathsig", "KILL", "/bin/sh", "-c", _UNLESS_ORPHANED, str(os.getpid()), *command]
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
