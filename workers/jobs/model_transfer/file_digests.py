"""The sha256 of files on this node: each is computed once, and kept with the size and the time of change of its file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO, Final

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS
from protocol.messages.model_transfer import SharedFile

FILE: Final = "file_digests.json"
MAX_RECORDS: Final = 4096


class ChangedError(Exception):
    """A file is not the one that was registered."""


def opened(file: SharedFile) -> IO[bytes]:
    """Open a registered file; raises :class:`ChangedError` if it is gone, or not the registered one any more."""
    try:
        # A FIFO in its place must not make this wait.
        stream = os.fdopen(os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)
    except OSError as problem:
        raise ChangedError(str(problem)) from problem
    try:
        check_unchanged(stream, file)
    except ChangedError:
        stream.close()
        raise
    return stream


def check_unchanged(stream: IO[bytes], file: SharedFile) -> None:
    """Raise :class:`ChangedError` if an open file is not the registered one."""
    facts = os.fstat(stream.fileno())
    if (facts.st_size, facts.st_mtime_ns) != (file.size, file.mtime_ns):
        raise ChangedError("its size or its time of change differs")


class _Record(msgspec.Struct, frozen=True):
    size: int
    mtime_ns: int
    sha256: str


class FileDigests:
    """The digests that are known."""

    def __init__(self, cache_dir: str) -> None:
        """Read what is known. Without a readable file, that is nothing."""
        self._path = Path(cache_dir) / FILE
        try:
            self._known = msgspec.json.decode(small_files.read_small_file(self._path), type=dict[str, _Record])
        except (OSError, *DECODE_ERRORS):
            self._known = {}

    def get(self, file: SharedFile) -> str:
        """Return a digest, computed if it is not known; raises :class:`ChangedError` if the file is not the registered one."""
        record = self._known.get(file.path)
        if record is not None and (record.size, record.mtime_ns) == (file.size, file.mtime_ns):
            return record.sha256
        try:
            with opened(file) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
                check_unchanged(stream, file)
        except OSError as problem:
            raise ChangedError(str(problem)) from problem
        self._known.pop(file.path, None)
        self._known[file.path] = _Record(file.size, file.mtime_ns, digest)
        for oldest in list(self._known)[: max(0, len(self._known) - MAX_RECORDS)]:
            del self._known[oldest]
        self._write()
        return digest

    def _write(self) -> None:
        """Keep what is known. If that fails, another process computes it again."""
        draft = self._path.with_name(f".{FILE}-{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(self._known))
            draft.replace(self._path)
        except OSError:
            draft.unlink(missing_ok=True)
