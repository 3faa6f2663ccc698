"""A process that has no file descriptor left: this one for a while, or another one until the limit is set back."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptors(pid: int = 0) -> Iterator[None]:
    """Let a process (0: this one) open nothing within the block; what is open works on."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (5, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
