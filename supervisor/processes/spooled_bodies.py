"""Reads the bodies of requests that gateways have put into files: a worker on another node cannot read them itself.

A disk may be slow, so a thread waits for it. A server on one machine does not import this.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.persistence.disk_thread import DiskThread
from supervisor.processes import stale_files


class SpooledBodies:
    """The bodies, read one after the other."""

    def __init__(self, loop: Loop, context: ProcessContext) -> None:
        """``context``: of the gateways that have written them."""
        self._loop, self._context = loop, context
        self._thread: DiskThread | None = None

    def read(self, name: str, use: Callable[[bytes | Exception], None]) -> None:
        """Call with the body in a file, or with the OSError that says why there is none. The thread starts with the first one."""
        if self._thread is None:
            self._thread = DiskThread(self._loop, "body-reader")
        self._thread.run(partial(stale_files.read_body, self._context, name), use)
