"""Counts the functions that are called while something runs: a measure of its work that does not depend on how busy the machine is."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def count_calls(action: Callable[[], object]) -> int:
    """Return how many functions of Python and of C ``action`` calls; what it raises is passed on.

    No garbage of other tests is collected meanwhile, because that may call functions.
    """
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count
