"""Runs work that waits for a disk in a thread: meanwhile a worker must answer its supervisor, whatever the disk does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from protocol.runtime.loop import Loop

T = TypeVar("T")


class DiskResult(Generic[T]):
    """The result of the work: a value, or the OSError or ValueError that it raised."""

    def __init__(self, value: T | None = None, problem: OSError | ValueError | None = None) -> None:
        """One of both."""
        self._value = value
        self.problem = problem

    @property
    def value(self) -> T:
        """The value; raises the problem, if there was one."""
        if self.problem is not None:
            raise self.problem
        return cast("T", self._value)


def in_disk_thread(loop: Loop, work: Callable[[], T], done: Callable[[DiskResult[T]], None]) -> None:
    """Do the work in a thread, and call ``done`` with the result in the loop.

    Nothing waits for it when the process ends.
    """
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    outcomes: list[DiskResult[T]] = []

    def run() -> None:
        try:
            outcomes.append(DiskResult(work()))
        except (OSError, ValueError) as problem:
            outcomes.append(DiskResult(problem=problem))
        finally:
            os.eventfd_write(wake, 1)

    def finish() -> None:
        loop.on_readable(wake, None)
        os.close(wake)
        done(outcomes[0] if outcomes else DiskResult(problem=ValueError("an internal error; the log has the details")))

    loop.on_readable(wake, finish)
    threading.Thread(target=run, name="disk", daemon=True).start()
