"""State files: written completely or not at all. A broken one is moved aside, not overwritten."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS, printable

FinishWrite = Callable[[Path, Path, Callable[[OSError | None], None]], None]
"""(draft, path, done): completes a write, as :func:`finish_write` does."""
_drafts: Final = itertools.count()
T = TypeVar("T")


class FileVersion(NamedTuple):
    """Differs between a file and the one that replaced it, or the same one that others may now read."""

    inode: int
    size: int
    modified: int
    changed: int


def file_version(path: Path) -> FileVersion | None:
    """Return the version of a file, or None if there is no file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return FileVersion(facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def write_draft(path: Path, data: bytes) -> Path:
    """Write ``data`` beside ``path``, without waiting for the disk; return the draft. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{next(_drafts)}.new")
    try:
        draft.write_bytes(data)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def finish_write(draft: Path, path: Path, done: Callable[[OSError | None], None]) -> None:
    """Wait until the draft is on the disk, give it its name, and call ``done(None)``; raises OSError.

    The content must be on the disk before the name is. The name itself need not be: the directory is not synced, so
    only a power cut may bring back the content of a few seconds before.
    """
    try:
        file = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    done(None)


class StateFile:
    """One file of the state directory: its content, whether it was changed, and how it is replaced.

    ``finish`` completes a write as :func:`finish_write` does, at once or later; ``done`` then gets None or the error.
    Until then, :meth:`read` returns what is being written.
    """

    def __init__(self, path: Path, finish: FinishWrite = finish_write) -> None:
        """Nothing is read yet."""
        self.path = path
        self._finish = finish
        self._version: FileVersion | None = None
        self._unread = ""
        """Why it could not be read; empty if it could."""
        self._unfinished = 0
        self._content = b""
        """What was written last, while ``_unfinished``."""
        self.failed = False
        """Whether the latest write failed, so that the disk may not have what was written."""
        self.problems: list[str] = []
        """Errors in the file, and writes that failed after they were begun. The reader of this list empties it."""

    def changed(self) -> bool:
        """Return whether the file has been replaced since the last call or write, or can be read again."""
        if self._unfinished:
            return False
        version = file_version(self.path)
        if version == self._version:
            return self.readable_again()
        self._version = version
        return True

    def readable_again(self) -> bool:
        """Return whether the file could not be read, but can be now: it has to be read before it is replaced."""
        if not self._unread or self._unfinished:
            return False
        try:
            read_json_object(self.path)
        except OSError:
            return False
        except ValueError:
            pass  # it can be read; what is wrong with it is known when it is
        return True

    @property
    def modified(self) -> int:
        """When the file was changed, in Unix seconds; 0 if there is none."""
        return self._version.modified // 10**9 if self._version else 0

    def read(self) -> dict[str, Any]:
        """Return the JSON object in the file; raises like :func:`read_json_object`."""
        if self._unfinished:
            return decode_json_object(self.path, self._content)
        self._unread = ""
        try:
            return read_json_object(self.path)
        except OSError as problem:
            self._unread = problem.strerror or str(problem)
            raise

    def load(self, kind: type[T]) -> T | None:
        """Return the content as ``kind``, for which ``{}`` is a value; None if the file cannot be read.

        A broken file is moved aside, and counts as missing. :attr:`problems` says what was wrong.
        """
        try:
            return msgspec.convert(self.read(), kind)
        except msgspec.ValidationError as problem:
            wrong = f"{self.path.name}: {printable(str(problem), 300)}"
        except ValueError as problem:
            wrong = str(problem)
        except OSError as problem:
            self.problems.append(f"{self.path.name} cannot be read: {problem.strerror}")
            return None
        self.problems.append(f"{wrong}; {self.move_aside()}")
        return msgspec.convert({}, kind)

    def move_aside(self) -> str:
        """Move the broken file aside; return its new path, or why it could not be moved."""
        content = move_broken_file(self.path)
        self._version = file_version(self.path)
        return content

    def replace(self, value: Mapping[str, Any]) -> None:
        """Replace the content; raises OSError, in which case nothing has changed.

        A file that is there and could not be read is not replaced, because its content would be lost.
        """
        if self._unread and self.path.exists():
            raise PermissionError(
                errno.EACCES, f"{self.path.name} could not be read and stays as it is: {self._unread}"
            )
        data = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
        draft = write_draft(self.path, data)
        self._content = data
        self._unfinished += 1
        try:
            self._finish(draft, self.path, self._finished)
        except BaseException:
            self._unfinished -= 1
            raise

    def _finished(self, problem: OSError | None) -> None:
        self._unfinished -= 1
        self.failed = problem is not None
        if problem is not None:
            self.problems.append(f"{self.path.name} could not be written: {problem.strerror}")
            self._version = None  # what is on the disk counts again
        elif not self._unfinished:
            self._version = file_version(self.path)


def move_broken_file(path: Path) -> str:
    """Move a broken file to ``NAME.broken-TIME``; return the new name, or why it could not be moved."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    for number in range(100):
        target = path.with_name(f"{path.name}.broken-{stamp}" + (f"-{number}" if number else ""))
        if not target.exists():
            break
    try:
        path.rename(target)
    except OSError as problem:
        return f"could not be moved aside: {problem.strerror}"
    return f"moved aside to {target.name}"


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if there is no file.

    Raises ValueError saying what is wrong with its content, or OSError if it cannot be read.
    """
    try:
        data = small_files.read_small_file(path)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        if problem.errno == errno.EFBIG:
            raise ValueError(f"{path.name}: {problem.strerror}") from None
        raise
    return decode_json_object(path, data)


def decode_json_object(path: Path, data: bytes) -> dict[str, Any]:
    """Return the JSON object in ``data``; raises ValueError that names the file."""
    try:
        value = msgspec.json.decode(data, type=dict[str, Any])
    except DECODE_ERRORS as problem:
        raise ValueError(f"{path.name}: {problem}") from None
    return value
