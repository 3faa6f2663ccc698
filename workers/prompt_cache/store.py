"""The files of kept prompt caches: written as drafts, named when complete, verified before use. Everything here may wait for the disk.

Invariants:

* A folder with an entry's name is complete. Its checksums are verified before an engine reads it, because an engine
  does not notice a broken file: it answers nonsense or crashes.
* A draft belongs to the process that holds its lock. The next :meth:`PromptCacheStore.tidy` removes the drafts of dead
  processes.
* Folders appear and disappear under the lock of the store, which other servers with the same ``cache_dir`` also
  respect.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS
from protocol.models import prompt_caches
from protocol.models.prompt_caches import EntryName
from workers.prompt_cache.retention import StoredEntry, entries_to_remove

MANIFEST: Final = "manifest.json"
MIN_FREE_BYTES: Final = 1024**3
"""Prompt caches leave this much of the disk free."""
_DRAFT: Final = ".draft-"
_LOCK: Final = "lock"
_CHUNK_BYTES: Final = 1024 * 1024


class SavedSlot(msgspec.Struct, frozen=True):
    """The file of one slot. ``size`` in bytes."""

    slot: int
    tokens: int
    size: int
    checksum: int
    """CRC-32."""

    @property
    def file(self) -> str:
        """Its name in the entry's folder."""
        return slot_file(self.slot)


class Manifest(msgspec.Struct, frozen=True):
    """What an entry's folder says about itself."""

    model: str
    slots: list[SavedSlot]

    @property
    def size(self) -> int:
        """Bytes of all slots together."""
        return sum(slot.size for slot in self.slots)

    @property
    def tokens(self) -> int:
        """Tokens of all slots together."""
        return sum(slot.tokens for slot in self.slots)


class SavedCache(msgspec.Struct, frozen=True):
    """An entry that was verified."""

    folder: Path
    manifest: Manifest


_manifest: Final = msgspec.json.Decoder(Manifest).decode


def slot_file(slot: int) -> str:
    """Return the name of a slot's file."""
    return f"slot-{slot}"


class Draft:
    """A folder that an engine writes slots into. It is completed and gets its name, or is discarded."""

    def __init__(self, folder: Path) -> None:
        """Take the lock that says that a process is using it; raises OSError if another one holds it."""
        self.folder = folder
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise

    def finished(self, slot: int, tokens: int) -> SavedSlot:
        """Return the facts of a slot's file that the engine has written; raises OSError if it cannot be read."""
        path = self.folder / slot_file(slot)
        checksum, size = _checksum(path)
        return SavedSlot(slot, tokens, size, checksum)

    def size(self) -> int:
        """Return the bytes that were written so far."""
        with suppress(OSError), os.scandir(self.folder) as files:
            return sum(file.stat().st_size for file in files)
        return 0

    def discard(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Give up the lock. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class PromptCacheStore:
    """All kept prompt caches of a ``cache_dir``."""

    def __init__(self, cache_dir: str, limit: int, min_free: int = MIN_FREE_BYTES) -> None:
        """Touch nothing yet.

        ``limit``: bytes of all entries together. ``min_free``: bytes of the disk that stay free.
        """
        self.root = prompt_caches.root(cache_dir)
        self.limit = limit
        self.min_free = min_free

    def free_bytes(self) -> int:
        """Return the free space of the disk above ``min_free``, negative if there is less; raises OSError."""
        facts = os.statvfs(self.root)
        return facts.f_bavail * facts.f_frsize - self.min_free

    def begin(self) -> Draft:
        """Return a new draft. Raises OSError; ENOSPC if the disk is full although all entries were removed."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        with self._locked():
            free = self.free_bytes()
            if free <= 0:
                self._remove(entries_to_remove(self._entries(), self.limit, 1 - free))
                if self.free_bytes() <= 0:
                    raise OSError(errno.ENOSPC, f"less than {self.min_free >> 20} MiB are free", str(self.root))
            folder = self.root / f"{_DRAFT}{secrets.token_hex(8)}"
            folder.mkdir(mode=0o700)
            return Draft(folder)

    def commit(self, draft: Draft, model: str, key: str, slots: Sequence[SavedSlot]) -> SavedCache:
        """Make a draft an entry that replaces older ones; return it.

        Raises OSError, in which case nothing has changed.
        """
        kept = {slot.file for slot in slots}
        for file in draft.folder.iterdir():
            if file.name not in kept:
                file.unlink()
        manifest = Manifest(model, list(slots))
        (draft.folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        with self._locked():
            digest = prompt_caches.model_digest(model)
            # The clock may have been set back since the last entry was saved, which this one replaces anyway.
            others = [each.name.number + 1 for each in self._entries() if each.name.model == digest]
            entry = self.root / str(EntryName(digest, key, max([time.time_ns(), *others])))
            draft.folder.rename(entry)
            draft.release()
            self._remove(entries_to_remove(self._entries(), self.limit))
        return SavedCache(entry, manifest)

    def find(self, model: str, key: str) -> SavedCache | None:
        """Return the newest entry of a model with this key, if there is one.

        A broken one is removed: raises ValueError.
        """
        digest = prompt_caches.model_digest(model)
        if not self.root.is_dir():
            return None
        entries = [entry for entry in self._entries() if (entry.name.model, entry.name.key) == (digest, key)]
        if not entries:
            return None
        folder = self.root / str(max(entry.name for entry in entries))
        try:
            manifest = _verified_manifest(folder)
        except (OSError, ValueError, *DECODE_ERRORS) as problem:
            self.remove(folder)
            raise ValueError(str(problem)) from problem
        with suppress(OSError):
            os.utime(folder / MANIFEST)
        return SavedCache(folder, manifest)

    def remove(self, folder: Path) -> None:
        """Remove one entry."""
        with suppress(OSError), self._locked():
            _remove_folder(folder)

    def remove_model(self, model: str) -> None:
        """Remove all entries of a model."""
        for folder in prompt_caches.entries_of(str(self.root.parent), model):
            self.remove(folder)

    def tidy(self) -> None:
        """Remove the drafts of dead processes, and what exceeds ``limit``; raises OSError."""
        if not self.root.is_dir():
            return
        with self._locked():
            for folder in self.root.glob(f"{_DRAFT}*"):
                with suppress(OSError):
                    Draft(folder).discard()
            self._remove(entries_to_remove(self._entries(), self.limit))

    def _entries(self) -> list[StoredEntry]:
        found = []
        for folder in self.root.iterdir():
            name = prompt_caches.parse_entry_name(folder.name)
            if name is None:
                continue
            try:
                size = sum(file.stat().st_size for file in folder.iterdir())
                used_at = (folder / MANIFEST).stat().st_mtime
            except OSError:
                size, used_at = 0, 0.0
            found.append(StoredEntry(name, size, used_at))
        return found

    def _remove(self, entries: Sequence[StoredEntry]) -> None:
        for entry in entries:
            _remove_folder(self.root / str(entry.name))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _verified_manifest(folder: Path) -> Manifest:
    """Return the content of an entry; raises OSError, ValueError or ``DECODE_ERRORS`` if it is not as it was written."""
    manifest = _manifest(small_files.read_small_file(folder / MANIFEST))
    for slot in manifest.slots:
        if _checksum(folder / slot.file) != (slot.checksum, slot.size):
            raise ValueError(f"{slot.file} has changed since it was written")
    return manifest


def _remove_folder(folder: Path) -> None:
    """Remove a folder, its manifest first, so that what an interruption leaves is never mistaken for an entry."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _checksum(path: Path) -> tuple[int, int]:
    """Return the CRC-32 of a file, and its size."""
    checksum = size = 0
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum = zlib.crc32(buffer[:count], checksum)
            size += count
    return checksum, size
