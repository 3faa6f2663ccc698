"""Completes writes of state files: a thread syncs and renames them.

A write is a draft in the page cache, made by the loop, which thereby notices full disks and missing permissions at once,
and one ``fsync``, for which the thread waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.persistence.disk_thread import DiskThread
from supervisor.persistence.state_files import finish_write

Done = Callable[[OSError | None], None]

log = logs.get_logger()


def _ignore(_problem: OSError | None) -> None:
    """Do nothing: the loop gets the result."""


class StateWriter:
    """Completes writes in their order, each with a callback in the loop."""

    def __init__(self, loop: Loop) -> None:
        """Start the thread."""
        self._thread = DiskThread(loop, "state-writer")
        self._unfinished = 0
        self._waiting: list[Done] = []
        self._failed: OSError | None = None
        """The last error since nothing was waiting."""

    def finish(self, draft: Path, path: Path, done: Done) -> None:
        """Complete the write of a draft. ``done`` is called in the loop, with the error if there was one."""
        self._unfinished += 1
        self._thread.run(lambda: finish_write(draft, path, _ignore), partial(self._finished, done))

    def when_written(self, callback: Done) -> None:
        """Call back when all writes begun so far are on the disk, with the last error; at once if there are none."""
        if self._unfinished:
            self._waiting.append(callback)
        else:
            callback(None)

    def _finished(self, done: Done, problem: Exception | None) -> None:
        if problem is not None and not isinstance(problem, OSError):
            raise problem
        self._unfinished -= 1
        if problem is not None:
            self._failed = problem
            log.error("a state file could not be written", reason=problem.strerror, detail=str(problem))
        done(problem)
        if not self._unfinished:
            waiting, self._waiting = self._waiting, []
            failed, self._failed = self._failed, None
            for callback in waiting:
                callback(failed)

    def close(self) -> None:
        """Complete what was begun, and end the thread."""
        self._thread.close()
