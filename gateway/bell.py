"""Wakes one greenlet from the hub, at once and without a turn of the loop in between."""

from __future__ import annotations

import gevent
from gevent.hub import Waiter


class Bell:
    """One greenlet waits, a callback of the hub rings. A ring that nobody waits for is not kept."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiter: Waiter[bool] | None = None

    def wait(self, seconds: float | None) -> bool:
        """Wait for a ring; return False if ``seconds`` passed without one."""
        hub = gevent.get_hub()
        waiter = self._waiter = Waiter(hub)
        if seconds is None:
            try:
                return bool(waiter.get())
            finally:
                self._waiter = None
        timer = hub.loop.timer(seconds)
        timer.start(waiter.switch, False)
        try:
            return bool(waiter.get())
        finally:
            self._waiter = None
            timer.stop()
            timer.close()

    def ring(self) -> None:
        """Wake the one that waits. Call it in a callback of the hub only."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            waiter.switch(True)
