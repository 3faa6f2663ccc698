"""State files: written whole or not at all, and moved aside, not overwritten, if they are broken."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from protocol.runtime import small_files
from protocol.wire.decoding import DECODE_ERRORS


class FileVersion(NamedTuple):
    """What tells that a file is another one than before."""

    inode: int
    size: int
    modified: int


def file_version(path: Path) -> FileVersion | None:
    """Return the mark of a file, or None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return FileVersion(facts.st_ino, facts.st_size, facts.st_mtime_ns)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file by ``data``: a reader sees the old or the new one, also after a power cut.

    For that the content has to be on the disk before the name is; the name itself need not be.  So the directory is
    not synced: the supervisor's loop would wait for the disk once more, so that a power cut, and nothing less, does
    not bring back what was there a few seconds before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


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

    Raises ValueError saying what is wrong with its content, and OSError if it cannot be read.
    """
    try:
        data = small_files.read_small_file(path)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        if problem.errno == errno.EFBIG:
            raise ValueError(f"{path.name}: {problem.strerror}") from None
        raise
    try:
        value = msgspec.json.decode(data, type=dict[str, Any])
    except DECODE_ERRORS as problem:
        raise ValueError(f"{path.name}: {problem}") from None
    return value
