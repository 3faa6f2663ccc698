"""Waiting for a condition with a deadline. The only place in the tests that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

DEADLINE: Final = 15.0
"""Seconds within which a condition must become true in a test, even on a busy machine. ``make bench`` measures

milliseconds.
"""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.05


def wait_for(condition: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
    """Return the first truthy value of ``condition``; fail naming ``what`` after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    pause_s = _FIRST_PAUSE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} s: {what} (last seen: {value!r})")
        time.sleep(pause_s)
        pause_s = min(
            1.2 * pause_s, _LONGEST_PAUSE
        )  # looking costs the server time that it needs for the awaited condition


def stays(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Fail if ``condition`` is ever false within ``seconds``: for events that must not happen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            raise AssertionError(f"did not last {seconds:g} s: {what}")
        time.sleep(_LONGEST_PAUSE)


def pause(seconds: float) -> None:
    """Wait, where the passing of time itself is tested: a slow reader, a stopped process."""
    time.sleep(seconds)
