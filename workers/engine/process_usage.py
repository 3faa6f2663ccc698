"""What a process tree has used so far: processor time, bytes read, memory. Read from /proc.

The files are parsed by hand: this runs several times a second in every worker, and a worker must stay small.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LEAST_SHARED: Final = 4 << 20
"""Less shared memory than this is not looked at more closely."""


class ProcessUsage(NamedTuple):
    """What a process and its descendants have used. Counters fall when one of them ends."""

    cpu_seconds: float = 0.0
    """Processor time that they had or waited for: on an overloaded machine, waiting is not a sign of a hang."""
    bytes_read: int = 0
    """Bytes read by system calls, and bytes fetched from a disk for mapped files."""
    resident: int = 0
    """Resident bytes. They grow while a mapped file is read from a file system that counts no reads."""
    runnable: bool = False
    """Whether a thread runs now, or waits for a processor: its wait is only counted when it ends."""


def usage_of_tree(pid: int) -> ProcessUsage:
    """Return what a process tree has used; zeros for processes that have ended meanwhile."""
    pids = _tree(pid)
    return ProcessUsage(
        sum(map(_cpu_seconds, pids)),
        sum(map(_bytes_read, pids)),
        sum(map(resident, pids)),
        any(map(_is_runnable, pids)),
    )


def resident_of_tree(pid: int) -> int:
    """Return the resident bytes of a process tree, including mapped files; 0 if it has ended."""
    return sum(resident(each) for each in _tree(pid))


def resident(pid: int) -> int:
    """Return the resident bytes of one process, 0 if it has ended."""
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def used_by_tree(pid: int) -> int:
    """Return the bytes that a process tree uses, pages of files left out; 0 if it has ended.

    Takes microseconds, unless one of the processes has shared memory beside files of a tmpfs: see :func:`_without_files`.
    """
    return sum(map(_used, _tree(pid)))


def proportional_of_tree(pid: int) -> int:
    """Return the bytes that a process tree uses with its mapped files; a page of several processes counts in parts.

    0 if it has ended, or the system does not say. Takes milliseconds for each gigabyte.
    """
    return sum(_proportional(each) for each in _tree(pid))


def _used(pid: int) -> int:
    try:
        status = _read(f"/proc/{pid}/status")
        shared = _kibibytes(status, (b"RssShmem:",))
        if shared >= _LEAST_SHARED:
            shared = _without_files(pid, shared)
        return _kibibytes(status, (b"RssAnon:", b"VmSwap:")) + shared
    except (OSError, ValueError, IndexError):
        return 0


def _without_files(pid: int, shared: int) -> int:
    """Return a process's shared memory without the pages of the files on a tmpfs that are mapped for reading only.

    These are files' pages, as on any other file system, but the kernel counts them as shared memory. How many are resident is only
    asked if there is other shared memory as well: that takes about 10 ms for each gigabyte.
    """
    mounts = (line.split() for line in _read(f"/proc/{pid}/mountinfo").splitlines())
    devices = {words[2] for words in mounts if words[words.index(b"-") + 1] == b"tmpfs"}
    files: set[bytes] = set()
    others = 0
    for line in _read(f"/proc/{pid}/maps").splitlines():
        addresses, permissions, _offset, device, *_ = line.split()
        major, minor = (int(number, 16) for number in device.split(b":"))
        if permissions[:2] == b"r-" and b"%d:%d" % (major, minor) in devices:
            files.add(addresses)
        elif permissions[3:] == b"s":
            start, end = (int(address, 16) for address in addresses.split(b"-"))
            others += end - start
    if not files:
        return shared
    return max(0, shared - _resident_in(pid, files)) if others >= _LEAST_SHARED else 0


def _resident_in(pid: int, mappings: set[bytes]) -> int:
    """Return the resident bytes of the mappings with these addresses."""
    total, counts = 0, False
    for line in _read(f"/proc/{pid}/smaps").splitlines():
        name, *values = line.split()
        if not name.endswith(b":"):
            counts = name in mappings
        elif counts and name == b"Rss:":
            total += int(values[0]) * 1024
    return total


def _proportional(pid: int) -> int:
    try:
        return _kibibytes(_read(f"/proc/{pid}/smaps_rollup"), (b"Pss:", b"SwapPss:"))
    except (OSError, ValueError, IndexError):
        return 0


def _kibibytes(text: bytes, names: tuple[bytes, ...]) -> int:
    """Return the sum of the lines ``NAME: NUMBER kB`` with these names, in bytes."""
    lines = (line.split() for line in text.splitlines())
    return sum(int(words[1]) * 1024 for words in lines if words and words[0] in names)


def _tree(pid: int) -> list[int]:
    pids = [pid]
    for each in pids:
        pids += _children(each)
    return pids


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]
    except (OSError, ValueError):
        return []


def _cpu_seconds(pid: int) -> float:
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            ran, waited, _ = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
            total += int(ran) + int(waited)
    except (OSError, ValueError):
        pass  # a thread, or the whole process, ended meanwhile
    return total / 1e9


def _is_runnable(pid: int) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        return any(_state(_read(f"/proc/{pid}/task/{thread}/stat")) == b"R" for thread in threads)
    except OSError:
        return False  # a thread, or the whole process, ended meanwhile


def _state(stat: bytes) -> bytes:
    """Return the state letter: the field after the program's name, which is in parentheses and may contain some."""
    return stat[stat.rfind(b")") + 2 :][:1]


def _bytes_read(pid: int) -> int:
    total = 0
    try:
        for line in _read(f"/proc/{pid}/io").splitlines():
            name, _, value = line.partition(b":")
            if name in (b"rchar", b"read_bytes"):
                total += int(value)
    except (OSError, ValueError):
        pass  # it ended, or this system does not say
    return total


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - no pathlib in what runs several times a second
        return file.read()
