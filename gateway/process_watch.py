"""Notices the end of another process from gevent's hub, with a pidfd."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import gevent

_READ: Final = 1


class ProcessWatch:
    """Calls back once, in the hub, when a process has ended; soon if no process has that pid."""

    def __init__(self, pid: int, callback: Callable[[], None]) -> None:
        """Watch ``pid`` from now on."""
        self.pid = pid
        self.ended = False
        """Whether the process has ended, or never existed."""
        self._callback = callback
        self._descriptor = -1
        self._watcher: Any = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            gevent.get_hub().loop.run_callback(self._ended)
            return
        self._watcher = gevent.get_hub().loop.io(self._descriptor, _READ)
        self._watcher.start(self._ended)

    def _ended(self) -> None:
        callback = self._callback
        self.ended = True
        self.close()
        callback()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._callback = _ignore
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def watch_instead(watched: ProcessWatch | None, pid: int, callback: Callable[[], None]) -> ProcessWatch:
    """Return a watch for ``pid``, and close the one of another process; ``watched`` itself if that is for ``pid``."""
    if watched is not None:
        if watched.pid == pid and not watched.ended:
            return watched
        watched.close()
    return ProcessWatch(pid, callback)


def _ignore() -> None:
    """Do nothing: the watch is closed."""
