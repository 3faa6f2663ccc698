"""What files take on the disk. A file with several names counts once; links are not followed, unless asked for."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_BLOCK: Final = 512
"""The unit of ``st_blocks``."""
FileId = tuple[int, int]
"""Device and inode."""


class DiskFiles:
    """Files, each by its identity."""

    def __init__(self) -> None:
        """There are none."""
        self.sizes: dict[FileId, int] = {}
        self._names: Counter[FileId] = Counter()
        self._links: dict[FileId, int] = {}
        self.newest = 0.0
        """When the last one was written, in Unix seconds. Empty ones do not count: a look makes locks."""

    def add(self, facts: os.stat_result) -> None:
        """Add a file; one that was already added has another name."""
        if not stat.S_ISREG(facts.st_mode):
            return
        identity = facts.st_dev, facts.st_ino
        self.sizes[identity] = facts.st_blocks * _BLOCK
        self._names[identity] += 1
        self._links[identity] = facts.st_nlink
        if facts.st_size:
            self.newest = max(self.newest, facts.st_mtime)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(self.sizes.values())

    def freed(self, left: DiskFiles) -> int:
        """Return what the disk got back when only ``left`` was left: nothing for a file with another name elsewhere."""
        return sum(
            size
            for identity, size in self.sizes.items()
            if identity not in left.sizes and self._links[identity] <= self._names[identity]
        )


def files_below(*paths: Path) -> DiskFiles:
    """Return files, and all files below folders."""
    found = DiskFiles()
    for path in paths:
        for facts in _walk(path):
            found.add(facts)
    return found


def files_named(paths: Iterable[Path]) -> DiskFiles:
    """Return the files that these names mean, also by links. A missing one is left out."""
    found = DiskFiles()
    seen: set[str] = set()
    for path in paths:
        with suppress(OSError):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                found.add(os.stat(real))  # noqa: PTH116 - the same as realpath's
    return found


def _walk(path: Path) -> Iterator[os.stat_result]:
    with suppress(OSError):
        facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            yield facts
            return
        with os.scandir(path) as entries:
            inner = [Path(entry.path) for entry in entries]
        for each in inner:
            yield from _walk(each)


def folders(path: Path) -> list[Path]:
    """Return the folders directly in a folder, in order; none if it cannot be read. Links to folders are left out."""
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def plain_files(path: Path) -> list[Path]:
    """Return the regular files directly in a folder, likewise."""
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        return []
