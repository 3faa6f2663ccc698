"""A process's environment and command line in /proc: how to read them, and how a forked process replaces its own.

The kernel shows the memory where ``exec`` put both, and a fork copies that memory. So a forked process would be shown
with the arguments of its parent, and could not be told from it. Therefore it overwrites them with its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_FIRST_ADDRESS: Final = 45
"""The first field of /proc/PID/stat, counted from the process's state, that says where the arguments and the environment are."""


def pack(environment: Mapping[str, str]) -> bytes:
    """Return the environment in the kernel's form."""
    return b"".join(os.fsencode(f"{name}={value}\0") for name, value in environment.items())


def parse(block: bytes) -> dict[str, str]:
    """Return the environment in a block."""
    entries = (entry.partition("=") for entry in os.fsdecode(block).split("\0"))
    return {name: value for name, separator, value in entries if separator}


def of_process(pid: int) -> dict[str, str]:
    """Return the environment that a process shows; empty for one that has ended. Raises OSError."""
    return parse(Path(f"/proc/{pid}/environ").read_bytes())


def show(command: Sequence[str], identity: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Show this command line and this environment in /proc instead of those of the last ``exec``.

    ``identity``: the variables that must be visible; others are shown if they fit. The process's own environment
    (``os.environ``) must be replaced first, so that C code no longer reads this memory.

    If the kernel does not say where they are, or if they do not fit, return False and change nothing.
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
