"""Small files: one that any program may have written is read without waiting for a pipe or gigabytes; a private one is replaced whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 4 * 1024 * 1024
"""Size limit in bytes: more than thirty thousand registered models, which take half a second to read."""


def read_small_file(path: Path) -> bytes:
    """Return the content of a file; raises OSError, with EFBIG if it is too large, with EINVAL if it is not a regular file."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if facts.st_size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MAX_BYTES >> 20} MiB", str(path))
        # No more than its size was: if another program is appending to it, a part of the addition is of no use.
        found = bytearray()
        while len(found) < facts.st_size and (part := os.read(file, facts.st_size - len(found))):
            found += part
        return bytes(found)
    finally:
        os.close(file)


def replace_private(path: Path, data: bytes) -> None:
    """Write a file, readable only for its owner; raises OSError, in which case nothing has changed."""
    with private_draft(path, data) as draft:
        draft.replace(path)


@contextlib.contextmanager
def private_draft(path: Path, data: bytes, *, lasting: bool = False, owned: bool = False) -> Iterator[Path]:
    """Yield a file beside ``path`` that has this content, readable only for its owner; raises OSError.

    It is removed at the end, unless it was renamed. ``lasting``: its content is on the disk. ``owned``: root gives it to the owner
    of its folder, because the server runs as that user.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            if owned and os.geteuid() == 0:
                owner = path.parent.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        yield draft
    finally:
        with contextlib.suppress(OSError):  # the disk may not answer any more: the first error counts
            draft.unlink(missing_ok=True)
