"""Disk functions of all downloads: free space, a lock between jobs, and the digest of a file."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from workers.jobs.errors import SourceError

BLOCK_BYTES: Final = 1 << 20
FREE_MARGIN_BYTES: Final = 64 << 20
"""Bytes that must stay free after a download."""
_LOCK_POLL_S: Final = 0.2


def require_free_space(folder: Path, size: int) -> None:
    """Raise a :class:`SourceError` if ``size`` more bytes do not fit beside ``folder``. Its detail names the folder."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    needed = size + FREE_MARGIN_BYTES
    if needed > free:
        raise SourceError(
            f"not enough disk space: {needed / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free",
            f"{folder}: {needed - free} bytes are missing",
            full=True,
        )


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file; while another process holds it, call ``waiting`` five times a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(lock)


@contextmanager
def locked_now(path: Path) -> Iterator[bool]:
    """Hold the lock file if no other process does; yield whether it is held. A link is never followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o664)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def size_of(path: Path) -> int:
    """Return the size of a file, 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def sha256(path: Path) -> str:
    """Return the digest of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
