"""When the log lines of requests are written: at once after a quiet moment, and those that follow closely together.

A line by itself is a sixth of what a gateway does for a small request: two system calls, and Python that no cache
remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gevent

from protocol.runtime import logs

BATCH_WINDOW_S: Final = 0.01


class RequestLogBuffer:
    """Holds lines of :func:`protocol.runtime.logs.log_batched` back for a moment, from its making until it is closed."""

    def __init__(self) -> None:
        """Begin."""
        self._loop = gevent.get_hub().loop
        self._timer: Any = None
        self._window_end = 0.0
        """When a moment has passed since the last writing, by the loop's clock."""
        logs.set_batching(self._schedule)

    def _schedule(self, write: Callable[[], None]) -> None:
        if self._loop.now() >= self._window_end:
            self._write(write)
            return
        self._stop()
        self._timer = self._loop.timer(BATCH_WINDOW_S)
        self._timer.start(self._write, write)

    def _write(self, write: Callable[[], None]) -> None:
        self._window_end = self._loop.now() + BATCH_WINDOW_S
        write()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def close(self) -> None:
        """Write what waits; nothing waits any more."""
        self._stop()
        logs.set_batching(None)
