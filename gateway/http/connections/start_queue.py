"""Lets a few new connections begin their first request in each iteration of the event loop; the others wait in order.

In a burst, accepting connections and parsing heads is faster than answering requests. So a monitor's request, which
does not wait here, is found behind a thousand others within a fraction of a second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gevent

from gateway.waker import GreenletWaker

STARTS_PER_ITERATION: Final = 4
CHECKS_S: Final = 0.005
"""Seconds of an iteration for checking the waiting connections, so that clients that have left take no turns from others."""


class StartQueue:
    """The connections of one process that wait to begin. Used by greenlets of one hub."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._loop = gevent.get_hub().loop
        self._iteration = 0.0
        """The loop's time, which stands still within an iteration."""
        self._started = 0
        self._waiting: deque[tuple[GreenletWaker, Callable[[], bool]]] = deque()
        self._timer: Any = None

    def wait(self, has_left: Callable[[], bool]) -> bool:
        """Return when the present greenlet may begin, usually at once; False if its client left while it waited."""
        now = self._loop.now()
        if now != self._iteration:
            self._iteration, self._started = now, 0
        if self._started < STARTS_PER_ITERATION and not self._waiting:
            self._started += 1
            return True
        waiting = GreenletWaker(), has_left
        self._waiting.append(waiting)
        self._wake_in_next_iteration()
        try:
            return waiting[0].wait(None)
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def _wake_in_next_iteration(self) -> None:
        if self._timer is None:
            self._timer = self._loop.timer(0.0)
            self._timer.start(self._wake)

    def _wake(self) -> None:
        self._timer.close()
        self._timer = None
        starts = STARTS_PER_ITERATION
        end = time.monotonic() + CHECKS_S
        while starts and self._waiting:
            waiter, has_left = self._waiting.popleft()
            begins = not has_left()
            waiter.wake(begins)
            starts -= begins
            if time.monotonic() >= end:
                break
        if self._waiting:
            self._wake_in_next_iteration()
