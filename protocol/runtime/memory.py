"""How the garbage collector behaves in a process that runs for months and makes little that refers to itself."""

from __future__ import annotations

import gc
from typing import Final

GC_THRESHOLD: Final = 20_000
"""New objects between two looks at the young ones; Python's 700 are some three requests."""


def tune_gc() -> None:
    """Call once when everything is imported: that stays, and need not be looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
