"""Binds a child process to the death of the process that starts it: the kernel kills it then.

``setpriv`` of util-linux does that in 1 ms.  Where it is missing, a Python that calls prctl(2) and becomes the program
does it in 20 ms and keeps no memory.  Not a function between fork and exec: the worker has threads of ZeroMQ, and what
runs there may wait for a lock that one of them held.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

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
"""Arguments: the parent's pid, then the program and its arguments. The parent may be dead already: then nothing is run."""


def find_setpriv(path: str | None = None) -> str | None:
    """Return the ``setpriv`` of util-linux on ``path`` (default: PATH), if there is one; busybox's knows no such option."""
    found = shutil.which("setpriv", path=path)
    return found if found and Path(found).resolve().name == "setpriv" else None


def bound_to_this_process(command: list[str], setpriv: str | None) -> list[str]:
    """Return the command that runs ``command`` and is killed when the calling thread ends; its pid stays the same."""
    if setpriv:
        return [setpriv, "--pdeathsig", "KILL", *command]
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
