"""A thread that waits for the disk so that the supervisor's loop does not: it syncs state files and renames them.

Why a thread and not a process: a write is a draft in the page cache, made by the loop, which thereby notices full disks
and missing permissions at once, and one ``fsync``, which releases the interpreter's lock. The thread touches no socket
and no state of the supervisor. Jobs come through a queue; results go back through another one and an eventfd that wakes
the loop.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.models.state_files import finish_write

Done = Callable[[OSError | None], None]

log = logs.get_logger()


class StateWriter:
    """Completes writes in their order, each with a callback in the loop."""

    def __init__(self, loop: Loop) -> None:
        """Start the thread."""
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Path, Path, Done] | None] = SimpleQueue()
        self._results: deque[tuple[Done, OSError | None]] = deque()
        self._unfinished = 0
        self._waiting: list[Done] = []
        self._failed: OSError | None = None
        """The last error since nothing was waiting."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.on_readable(self._wake, self._collect)
        self._thread = threading.Thread(target=self._work, name="state-writer", daemon=True)
        self._thread.start()

    def finish(self, draft: Path, path: Path, done: Done) -> None:
        """Complete the write of a draft. ``done`` is called in the loop, with the error if there was one."""
        self._unfinished += 1
        self._jobs.put((draft, path, done))

    def when_written(self, callback: Done) -> None:
        """Call back when all writes begun so far are on the disk, with the last error; at once if there are none."""
        if self._unfinished:
            self._waiting.append(callback)
        else:
            callback(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            draft, path, done = job
            try:
                finish_write(draft, path, partial(self._written, done))
            except OSError as problem:
                self._written(done, problem)

    def _written(self, done: Done, problem: OSError | None) -> None:
        self._results.append((done, problem))
        os.eventfd_write(self._wake, 1)

    def _collect(self) -> None:
        os.eventfd_read(self._wake)
        self._deliver()

    def _deliver(self) -> None:
        while self._results:
            done, problem = self._results.popleft()
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
        self._jobs.put(None)
        self._thread.join()
        self._deliver()
        self._loop.on_readable(self._wake, None)
        os.close(self._wake)
