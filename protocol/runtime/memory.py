"""Memory of a process: its garbage collector, for processes that run for months, and a bound for work with untrusted data."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

GC_THRESHOLD: Final = 20_000
"""New objects between two collections of the youngest generation.

About three requests make as many as Python's default of 700.
"""


def pause_gc() -> None:
    """Collect no garbage until :func:`tune_gc`. Call before the process imports its modules.

    Imports make hardly any garbage, and the search for it takes a tenth of the processor time of a start.
    """
    gc.disable()


def tune_gc() -> None:
    """Call once when everything is imported. Those objects stay, and later collections skip them.

    In a process that forks, call it before the fork: a collection writes to the memory that it looks at, and so copies
    it.
    """
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()


@contextmanager
def limited_growth(most: int) -> Iterator[None]:
    """Let the address space of this process grow by at most ``most`` bytes; an allocation beyond that raises MemoryError.

    The limit counts for all threads.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + most
    resource.setrlimit(resource.RLIMIT_AS, (min(limit, soft) if soft != resource.RLIM_INFINITY else limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
