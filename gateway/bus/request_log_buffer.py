"""Batches the log lines of requests: the first is written at once, and those of the next 10 ms together.

Writing a single line is a sixth of the work for a small request: two system calls, and code that is not in any cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gevent

from protocol.runtime import logs

BATCH_WINDOW_S: Final = 0.01


class RequestLogBuffer:
    """Delays lines of :func:`protocol.runtime.logs.log_batched` for a moment, from its construction until :meth:`close`."""

    def __init__(self) -> None:
        """Begin to delay lines."""
        self._loop = gevent.get_hub().loop
        self._timer: Any = None
        self._window_end = 0.0
        """End of the window after the last write, by the loop's clock."""
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
        """Write the waiting lines, and delay no more."""
        self._stop()
        logs.set_batching(None)
