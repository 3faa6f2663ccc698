"""Settings of the garbage collector for a process that runs for months and makes few reference cycles."""

from __future__ import annotations

import gc
from typing import Final

GC_THRESHOLD: Final = 20_000
"""New objects between two collections of the youngest generation; Python's 700 are made by about three requests."""


def tune_gc() -> None:
    """Call once when everything is imported: those objects stay, and no later collection looks at them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
