"""A partial file: it reports progress and computes the digest while the hub's library, or a transfer from another node, writes it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Self

from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.progress import DownloadProgress

_GIT_DIGEST_LENGTH: Final = 40
"""Digits of git's digest, which small files have at the hub."""


class DamagedError(SourceError):
    """All bytes are there, and size or digest is wrong."""


def _fresh_digest(size: int, etag: str) -> hashlib._Hash:
    if len(etag) == _GIT_DIGEST_LENGTH:
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.sha256()


def _digest_of(path: Path, size: int, etag: str) -> hashlib._Hash:
    digest = _fresh_digest(size, etag)
    with path.open("rb") as file:
        while block := file.read(disk.BLOCK_BYTES):
            digest.update(block)
    return digest


def has_digest(path: Path, size: int, etag: str) -> bool:
    """Return whether a whole file has this digest, which is one of git or a sha256. Reads it; raises OSError."""
    return path.stat().st_size == size and _digest_of(path, size, etag).hexdigest() == etag


class PartialFile:
    """The partial file of a download, opened to append."""

    def __init__(self, path: Path, size: int, etag: str, progress: DownloadProgress, source: str = "the hub") -> None:
        """Read the bytes that are already downloaded.

        ``size`` and ``etag`` are what the source says about the whole file. The etag is its digest; without one, :meth:`check` gets a sha256.
        """
        self._path = path
        self._size = size
        self._etag = etag
        self._source = source
        self._progress = progress
        self._file = path.open("ab+", buffering=0)
        self._digest = _fresh_digest(size, etag)
        self._in_order = True
        self.failed = False
        """Whether this class, not the hub, ended the transfer."""
        self._file.seek(0)
        while block := self._file.read(disk.BLOCK_BYTES):
            self._digest.update(block)
        progress.at(self.tell())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def tell(self) -> int:
        """Return how many bytes are there."""
        return self._file.tell()

    def write(self, data: bytes) -> int:
        """Append data; raises :class:`SourceError` for more bytes than the source's size of the file."""
        self.failed = True
        if self.tell() + len(data) > self._size:
            raise SourceError(f"it is larger than the {self._size} bytes that {self._source} announced")
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.failed = False
        self._digest.update(data)
        self._progress.at(self.tell())
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Change the position: the digest must then be computed again."""
        self._in_order = False
        return self._file.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        """Cut the file."""
        self._in_order = False
        return self._file.truncate(size)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def check(self, sha256: str = "") -> None:
        """Write it to the disk; raises :class:`DamagedError` if size or digest differ from the source's. ``sha256``: instead of the etag."""
        os.fsync(self._file.fileno())
        if not self._in_order:
            self._digest = _digest_of(self._path, self._size, self._etag)
        if self.tell() != self._size or self._digest.hexdigest() != (sha256 or self._etag):
            raise DamagedError(f"it arrived damaged (its digest differs from that of {self._source})")
