"""Settings of the garbage collector for a process that runs for months and makes few reference cycles."""

from __future__ import annotations

import gc
from typing import Final

GC_THRESHOLD: Final = 20_000
"""New objects between two collections of the youngest generation; Python's 700 are made by about three requests."""


def pause_gc() -> None:
    """Collect no garbage until :func:`tune_gc`. Call before the process imports its modules.

    Hardly anything that imports make is garbage, and the search for it is a tenth of the processor time of a start.
    """
    gc.disable()


def tune_gc() -> None:
    """Call once when everything is imported: those objects stay, and no later collection looks at them.

    In a process that forks, before it forks: a collection writes to the memory of what it looks at, and so copies it.
    """
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
