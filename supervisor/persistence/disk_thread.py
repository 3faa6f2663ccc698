"""A thread that waits for the disk so that the supervisor's loop does not.

Why a thread and not a process: its work is waiting for the disk, which releases the interpreter's lock. It touches no
socket and no state of the supervisor. Work comes through a queue; results go back through another one and an eventfd that
wakes the loop.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from protocol.runtime.loop import Loop

R = TypeVar("R")
Deliver = Callable[[], None]


class DiskThread:
    """Does one piece of work after the other, each with a callback in the loop."""

    def __init__(self, loop: Loop, name: str) -> None:
        """Start the thread."""
        self._loop = loop
        self._work: SimpleQueue[Callable[[], Deliver] | None] = SimpleQueue()
        self._results: deque[Deliver] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.on_readable(self._wake, self._collect)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], R], done: Callable[[R | Exception], None]) -> None:
        """Let the thread do ``work``; ``done`` gets in the loop what it returns, or the exception that it raises."""

        def do() -> Deliver:
            try:
                result: R | Exception = work()
            except Exception as problem:  # noqa: BLE001 - the caller judges it
                result = problem
            return lambda: done(result)

        self._work.put(do)

    def _run(self) -> None:
        while (do := self._work.get()) is not None:
            self._results.append(do())
            os.eventfd_write(self._wake, 1)

    def _collect(self) -> None:
        os.eventfd_read(self._wake)
        self._deliver()

    def _deliver(self) -> None:
        while self._results:
            self._results.popleft()()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended: after :meth:`close`, the disk hangs."""
        return self._thread.is_alive()

    def close(self, seconds: float | None = None) -> None:
        """Do what was begun, deliver its results, and end the thread. A disk that hangs is waited for ``seconds``."""
        self._work.put(None)
        self._thread.join(seconds)
        self._deliver()
        self._loop.on_readable(self._wake, None)
        if not self._thread.is_alive():
            os.close(self._wake)
