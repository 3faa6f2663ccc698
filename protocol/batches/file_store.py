"""The files that clients upload and batches write: ``STATE_DIR/files``, for processes of one machine.

``ID.data`` is the content and ``ID.json`` its record. A file exists as long as its record does, which is written last and
removed first. What is left without a record is removed an hour later. While a file is written, ``ID.draft`` is what its record
may become: its bytes are reserved as long as its writer lives and holds the lock of that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import small_files
from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS, Code, Failure
from protocol.file_lock import folder_lock

FILE_ID: Final = re.compile(r"file-[0-9a-f]{32}")
MAX_FILES: Final = 10_000
MAX_FILES_OF_KEY: Final = 1_000
"""Small files take little of ``files_bytes``, so their number is limited as well."""
_ORPHAN_AGE_S: Final = 3600.0
_DATA: Final = ".data"
_RECORD: Final = ".json"
_DRAFT: Final = ".draft"


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a file. Times are Unix seconds."""

    id: str
    owner: str
    """The digest of the API key that it belongs to; empty if it was made without one."""
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int = 0
    """From when on it does not exist; 0: never."""


class FileLimits(NamedTuple):
    """Bytes of one file, of all files together, and of those of one API key."""

    file: int
    all: int
    key: int

    @classmethod
    def of(cls, settings: Settings) -> FileLimits:
        """Return those of the settings."""
        return cls(settings.file_bytes, settings.files_bytes, settings.files_bytes_of_key)


class FileDraft:
    """A file that is being written, and has no name yet."""

    def __init__(self, folder: Path, file_id: str, owner: str, limit: int) -> None:
        """Begin with nothing; ``limit``: bytes that it may have, which are reserved. Raises OSError."""
        self.id = file_id
        self.size = 0
        self._limit = limit
        self._path = folder / f"{file_id}{_DATA}"
        self._reservation = folder / f"{file_id}{_DRAFT}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._lock = os.open(self._reservation, flags, 0o600)
        try:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._lock, msgspec.json.encode(FileRecord(file_id, owner, "", "", limit, 0)))
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")
        except OSError:
            self.release()
            raise

    def write(self, piece: bytes) -> None:
        """Append; raises ``body_too_large``, OSError."""
        self.size += len(piece)
        if self.size > self._limit:
            raise too_large(f"a file may have {self._limit} bytes")
        self._file.write(piece)

    def close(self) -> None:
        """Wait until everything is on the disk; raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def release(self) -> None:
        """Reserve nothing more; may be repeated."""
        with contextlib.suppress(OSError):
            self._reservation.unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def discard(self) -> None:
        """Remove it."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)
        self.release()


def too_large(message: str) -> Exception:
    """Return the exception for a file that may not be kept."""
    return Failure(Code.TOO_LARGE, message, param="file").raised()


class FileStore:
    """The files of a state directory. Its methods may wait for the disk, and raise OSError if it fails."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        """Nothing is read or made."""
        self.folder = Path(settings.state_dir) / "files"
        self._limits = FileLimits.of(settings)
        self._now = now

    def begin(self, owner: str, size: int = 0) -> FileDraft:
        """Begin a file of this owner; ``size``: the bytes that it has at most, if that is known.

        Raises ``body_too_large`` if its owner, or all together, have too much already, files that are being written included.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        with folder_lock(self.folder):
            most = min(self._left(owner), self._limits.file)
            return FileDraft(self.folder, f"file-{secrets.token_hex(16)}", owner, min(most, size or most))

    def _left(self, owner: str, besides: str = "") -> int:
        """Return how many bytes another file may have. ``besides``: the id of one whose reservation does not count."""
        records = [*self._records(), *(each for each in self._reservations() if each.id != besides)]
        own = [each for each in records if each.owner == owner]
        left = self._limits.all - sum(each.bytes for each in records)
        left_of_key = self._limits.key - sum(each.bytes for each in own)
        if left <= 0 or len(records) >= MAX_FILES:
            raise too_large("the files of all API keys use the space that they may have: delete some")
        if left_of_key <= 0 or len(own) >= MAX_FILES_OF_KEY:
            raise too_large("your files use the space that they may have: delete some")
        return min(left, left_of_key)

    def keep(self, draft: FileDraft, owner: str, filename: str, purpose: str, ttl: int = 0) -> FileRecord:
        """Close a draft and make it a file, for ``ttl`` seconds (0: until it is deleted).

        Raises ``body_too_large`` if results of batches, which reserve nothing, have left too little space.
        """
        draft.close()
        with folder_lock(self.folder):
            if draft.size > self._left(owner, draft.id):
                raise too_large("your files, or those of all API keys, use the space that they may have: delete some")
            record = self.record(draft.id, owner, filename, purpose, draft.size, ttl)
            draft.release()
        return record

    def record(self, file_id: str, owner: str, filename: str, purpose: str, size: int, ttl: int = 0) -> FileRecord:
        """Make the data with this id a file; once more changes nothing but its times."""
        now = int(self._now())
        record = FileRecord(file_id, owner, filename, purpose, size, now, now + ttl if ttl else 0)
        path = self.folder / f"{file_id}{_RECORD}"
        with small_files.private_draft(path, msgspec.json.encode(record), lasting=True) as draft:
            draft.replace(path)
        return record

    def get(self, file_id: str, owner: str | None) -> FileRecord:
        """Return a file of this owner, or with None of any; raises ``not_found``."""
        record = self._read(file_id) if FILE_ID.fullmatch(file_id) else None
        if record is None or owner not in (None, record.owner):
            shown = file_id if FILE_ID.fullmatch(file_id) else "with this id"
            raise Failure(Code.NOT_FOUND, f"there is no file {shown}", param="file_id").raised()
        return record

    def data(self, file_id: str) -> Path:
        """Return where the content of a file is."""
        return self.folder / f"{file_id}{_DATA}"

    def list(self, owner: str | None, purpose: str = "") -> list[FileRecord]:
        """Return the files of this owner, or with None of all, oldest first."""
        found = [each for each in self._records() if owner in (None, each.owner) and purpose in ("", each.purpose)]
        return sorted(found, key=lambda each: (each.created_at, self._written_at(each)))

    def _written_at(self, record: FileRecord) -> int:
        """Return when a record was written, in nanoseconds: several may be made in a second."""
        try:
            return (self.folder / f"{record.id}{_RECORD}").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def delete(self, record: FileRecord) -> None:
        """Remove a file. What reads it may go on."""
        (self.folder / f"{record.id}{_RECORD}").unlink(missing_ok=True)
        self.data(record.id).unlink(missing_ok=True)

    def _read(self, file_id: str) -> FileRecord | None:
        """Return a record; None if there is no such file (any more). One that has expired is removed."""
        try:
            data = small_files.read_small_file(self.folder / f"{file_id}{_RECORD}")
            record = msgspec.json.decode(data, type=FileRecord)
        except (OSError, *DECODE_ERRORS):
            return None
        if record.expires_at and record.expires_at <= self._now():
            self.delete(record)
            return None
        return record

    def _records(self) -> Iterator[FileRecord]:
        for path in list(self.folder.glob(f"file-*{_RECORD}")):
            record = self._read(path.stem) if FILE_ID.fullmatch(path.stem) else None
            if record is not None:
                yield record

    def _reservations(self) -> Iterator[FileRecord]:
        """Yield what is reserved for files that are being written. A reservation whose writer has died is removed."""
        for path in list(self.folder.glob(f"file-*{_DRAFT}")):
            with contextlib.suppress(FileNotFoundError, *DECODE_ERRORS):
                if _is_locked(path):
                    yield msgspec.json.decode(small_files.read_small_file(path), type=FileRecord)
                else:
                    path.unlink()

    def _sweep(self) -> None:
        """Remove what was never finished: its writer is gone, or would have written since."""
        for path in list(self.folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                old = path.stat().st_mtime < self._now() - _ORPHAN_AGE_S
                if old and path.suffix not in (_RECORD, _DRAFT) and not path.with_suffix(_RECORD).exists():
                    path.unlink()


def _is_locked(path: Path) -> bool:
    """Return whether the writer of a file lives. A file system without locks tells only that it wrote lately."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return path.with_suffix(_DATA).stat().st_mtime > time.time() - _ORPHAN_AGE_S
    finally:
        os.close(descriptor)
    return False
