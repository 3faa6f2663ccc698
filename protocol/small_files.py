"""Reads a small file that any program may have written. It waits neither for a pipe nor for gigabytes."""

from __future__ import annotations

import errno
import os
import stat
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
