"""Memory of a process: garbage collection, a bound for work with untrusted data, and whom the kernel ends first."""

from __future__ import annotations

import contextlib
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

OOM_SCORE_STEP: Final = 300
"""Added to a worker's or a job's score for the out-of-memory killer, and again to an engine's."""
MAX_OOM_SCORE: Final = 1000


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


def raise_oom_score(pid: int) -> None:
    """Make the out-of-memory killer prefer a process to the one that started it. This needs no privilege."""
    file = Path(f"/proc/{pid}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        file.write_text(str(min(MAX_OOM_SCORE, int(file.read_text()) + OOM_SCORE_STEP)))
