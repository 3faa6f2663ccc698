"""When the log lines of requests are written: at once after a quiet moment, and those that follow closely together.

A line by itself is a sixth of what a gateway does for a small request: two system calls, and Python that no cache
remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gevent

from protocol import logs

MOMENT_S: Final = 0.01


class Gatherer:
    """Holds lines of :func:`protocol.logs.later` back for a moment, from its making until it is closed."""

    def __init__(self) -> None:
        """Begin."""
        self._loop = gevent.get_hub().loop
        self._timer: Any = None
        self._quiet_at = 0.0
        """When a moment has passed since the last writing, by the loop's clock."""
        logs.gather(self._soon)

    def _soon(self, write: Callable[[], None]) -> None:
        if self._loop.now() >= self._quiet_at:
            self._now(write)
            return
        self._stop()
        self._timer = self._loop.timer(MOMENT_S)
        self._timer.start(self._now, write)

    def _now(self, write: Callable[[], None]) -> None:
        self._quiet_at = self._loop.now() + MOMENT_S
        write()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def close(self) -> None:
        """Write what waits; nothing waits any more."""
        self._stop()
        logs.gather(None)
