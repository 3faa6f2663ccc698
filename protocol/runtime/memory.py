"""Settings of the garbage collector for a process that runs for months and makes few reference cycles."""

from __future__ import annotations

import gc
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
