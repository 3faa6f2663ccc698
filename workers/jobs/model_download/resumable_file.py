"""A file that is not whole yet: counts for the gauge and digests as the hub's library writes it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Self

from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.progress import DownloadProgress

_GIT_DIGEST_LENGTH: Final = 40
"""Digits of git's digest: that of a small file, which the hub does not keep as a large one."""


class ResumableFile:
    """The partial file, opened to go on at its end."""

    def __init__(self, path: Path, size: int, etag: str, progress: DownloadProgress) -> None:
        """Read what is there already. ``size`` and ``etag`` are what the hub says of the whole file."""
        self._path = path
        self._size = size
        self._etag = etag
        self._progress = progress
        self._file = path.open("ab+", buffering=0)
        self._digest = self._fresh()
        self._in_order = True
        self.failed = False
        """Whether it was us, not the hub, who broke the transfer off."""
        self._file.seek(0)
        while block := self._file.read(disk.BLOCK_BYTES):
            self._digest.update(block)
        progress.at(self.tell())

    def _fresh(self) -> hashlib._Hash:
        if len(self._etag) == _GIT_DIGEST_LENGTH:
            return hashlib.sha1(b"blob %d\0" % self._size, usedforsecurity=False)
        return hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def tell(self) -> int:
        """Return how much is there."""
        return self._file.tell()

    def write(self, data: bytes) -> int:
        """Take what came; raises :class:`SourceError` for more than the hub said there is."""
        self.failed = True
        if self.tell() + len(data) > self._size:
            raise SourceError(f"it is larger than the {self._size} bytes that the hub says")
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.failed = False
        self._digest.update(data)
        self._progress.at(self.tell())
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go somewhere else: the digest must be made anew."""
        self._in_order = False
        return self._file.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        """Throw away what is behind."""
        self._in_order = False
        return self._file.truncate(size)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def check(self) -> None:
        """Put it all on the disk; raises :class:`SourceError` if it is not what the hub says."""
        os.fsync(self._file.fileno())
        if not self._in_order:
            self._digest = self._fresh()
            with self._path.open("rb") as file:
                while block := file.read(disk.BLOCK_BYTES):
                    self._digest.update(block)
        if self.tell() != self._size or self._digest.hexdigest() != self._etag:
            raise SourceError("it came damaged (its digest is not the one that the hub says)")
