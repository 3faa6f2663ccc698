"""Runs a loop until something has happened."""

from __future__ import annotations

import time
from collections.abc import Callable

from protocol.runtime.loop import Loop

DEADLINE = 5.0


def run_until(loop: Loop, condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        loop.run_once(0.1)
