"""A process's environment and command line as /proc shows them: how they are read, and how a forked process replaces its own.

The kernel shows the memory in which ``exec`` has put both, and a fork copies it.  So a forked process would be shown with
the arguments of its parent, and could not be told from it; it writes its own over them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_FIRST_ADDRESS: Final = 45
"""Field of /proc/PID/stat, counted from the process's state, from which on it says where the arguments and the environment are."""


def pack(environment: Mapping[str, str]) -> bytes:
    """Return the environment in the form in which the kernel keeps it."""
    return b"".join(os.fsencode(f"{name}={value}\0") for name, value in environment.items())


def parse(block: bytes) -> dict[str, str]:
    """Return the environment that a block means."""
    entries = (entry.partition("=") for entry in os.fsdecode(block).split("\0"))
    return {name: value for name, separator, value in entries if separator}


def of_process(pid: int) -> dict[str, str]:
    """Return the environment that a process shows; nothing of one that has ended. Raises OSError."""
    return parse(Path(f"/proc/{pid}/environ").read_bytes())


def show(command: Sequence[str], identity: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Show this command line and this environment in /proc instead of those of the last ``exec``.

    ``identity``: the variables that must be seen; of the others those that fit.  The process's own environment must be
    replaced before (``os.environ``): what C code reads of it must not be in this memory any more.

    Return False, and change nothing, if the kernel does not say where they are, or if they do not fit.
    """
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        arguments, arguments_end, variables, variables_end = map(int, fields[_FIRST_ADDRESS : _FIRST_ADDRESS + 4])
        words = fitting(command, arguments_end - arguments)
        block = pack(identity)
        if not arguments or not words or len(block) > variables_end - variables:
            return False
        for name, value in environment.items():
            entry = pack({name: value})
            if name not in identity and len(block) + len(entry) <= variables_end - variables:
                block += entry
        memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(memory, block.ljust(variables_end - variables, b"\0"), variables)
            os.pwrite(memory, words.ljust(arguments_end - arguments, b"\0"), arguments)
        finally:
            os.close(memory)
    except (OSError, ValueError):
        return False
    return True


def fitting(command: Sequence[str], size: int) -> bytes:
    """Return the command line, with the program's bare name if its path does not fit, empty if nothing fits."""
    for program in (command[0], Path(command[0]).name):
        words = b"".join(os.fsencode(f"{word}\0") for word in (program, *command[1:]))
        if len(words) <= size:
            return words
    return b""
