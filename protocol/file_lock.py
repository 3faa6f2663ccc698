"""Locks between processes: a file that only one server may have locked, with the pid of the holder in it; and a folder for a moment."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class HeldError(Exception):
    """Another process holds the lock; ``holder`` is its pid as text, or ``unknown``."""

    def __init__(self, holder: str) -> None:
        """Keep the holder."""
        super().__init__(f"held by pid {holder}")
        self.holder = holder


def lock(path: Path, pid: int = 0) -> int:
    """Create and lock a file; return its descriptor. The lock lasts as long as any process has that open.

    ``pid``: what to write into the file; 0: the pid of the present process. Raises :class:`HeldError`, and
    ``OSError`` if the file cannot be used.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{pid or os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise HeldError(holder) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait until no other thread or process holds a folder, and hold it; raises OSError if it cannot be opened.

    Some network file systems do not lock folders. There it holds nothing.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
