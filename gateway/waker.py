"""Wakes one greenlet from the hub at once, in the same iteration of the event loop."""

from __future__ import annotations

import time
from typing import Any, Final

import gevent
from gevent.hub import Waiter

_CHECK_INTERVAL_S: Final = 0.25


class _Timeouts:
    """Wakes the greenlets whose wait takes too long, with a single timer: a timer for each wait costs as much as the wait."""

    def __init__(self) -> None:
        self._ends: dict[Waiter[bool], float] = {}
        self._timer: Any = None

    def begin(self, waiter: Waiter[bool], seconds: float) -> None:
        self._ends[waiter] = time.monotonic() + seconds
        if self._timer is None:
            self._timer = gevent.get_hub().loop.timer(_CHECK_INTERVAL_S, _CHECK_INTERVAL_S)
            self._timer.start(self._wake_late)

    def end(self, waiter: Waiter[bool]) -> None:
        self._ends.pop(waiter, None)

    def _wake_late(self) -> None:
        if not self._ends:
            self._timer.stop()
            self._timer.close()
            self._timer = None
            return
        now = time.monotonic()
        for waiter in [waiter for waiter, end in self._ends.items() if end <= now]:
            del self._ends[waiter]
            waiter.switch(False)


_timeouts = _Timeouts()


class GreenletWaker:
    """Lets one greenlet wait until a callback of the hub wakes it.

    A wake-up without a waiting greenlet has no effect.
    """

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        """Start without a waiting greenlet."""
        self._waiter: Waiter[bool] | None = None

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake-up; return False after ``seconds`` (up to a quarter of a second later)."""
        waiter = self._waiter = Waiter(gevent.get_hub())
        if seconds is not None:
            _timeouts.begin(waiter, seconds)
        try:
            return bool(waiter.get())
        finally:
            self._waiter = None
            if seconds is not None:
                _timeouts.end(waiter)

    def wake(self, woken: bool = True) -> None:
        """Wake the waiting greenlet: its ``wait`` returns ``woken``. Only call it in a callback of the hub."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            waiter.switch(woken)
