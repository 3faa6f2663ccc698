"""A process without free file descriptors: this one for a while, or another one until its limit is restored."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptors(pid: int = 0) -> Iterator[None]:
    """Prevent a process (0: this one) from opening anything within the block; open descriptors keep working."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (5, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
