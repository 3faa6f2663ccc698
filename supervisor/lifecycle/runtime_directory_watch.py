"""Watches the runtime directory: without its sockets, no new gateway or worker could take part in the server.

Only this server changes the directory. If something in it is deleted or replaced anyway, running requests can
still end, because their connections are open. But no later process could start. So the server says what is missing,
lets running requests end, and exits with 1, so that its service manager restarts it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from protocol.config.settings import SETTINGS_FILE
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.runtime.messages import Messages
from supervisor.scheduler.view import SchedulerView

CHECK_INTERVAL_S: Final = 1.0
_CONFIRMATIONS: Final = 3
"""How many checks in a row must find the same thing missing: a worker that ends removes its sockets before its end is noticed."""

log = logs.get_logger()


class RuntimeDirectoryWatch:
    """Checks about every second that all sockets and files are where they were."""

    def __init__(
        self,
        context: ProcessContext,
        loop: Loop,
        peers: PeerRegistry,
        workers: WorkerProcesses,
        view: SchedulerView,
        messages: Messages,
        end: Callable[[], None],
    ) -> None:
        """Remember what is there now. ``end`` is called once, when the server cannot go on."""
        self._peers, self._workers, self._view = peers, workers, view
        self._messages, self._end = messages, end
        sockets = (endpoints.bus(context.runtime), endpoints.logs(context.runtime, context.boot))
        files = [
            *map(endpoints.socket_file, sockets),
            context.runtime / SETTINGS_FILE,
            endpoints.spool(context.runtime),
        ]
        self._inodes = {path: _inode(path) for path in [*files, endpoints.lock_file(context.runtime)]}
        self._found: tuple[Path, int] | None = None
        """What was missing at the last check, and for how many checks in a row."""
        loop.every(CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        if self._view.closing or self._messages.transition is not None:
            return  # a supervisor that hands over has written the settings of its successor
        missing = self._missing()
        if missing is None:
            self._found = None
            return
        known, count = self._found or (missing, 0)
        self._found = (missing, count + 1 if missing == known else 1)
        if self._found[1] >= _CONFIRMATIONS:
            log.critical(
                "the runtime directory was changed by something else: this server cannot go on; start it again",
                missing=str(missing),
            )
            self._end()

    def _missing(self) -> Path | None:
        """Return a file or socket that is missing, or was replaced; None if all is well."""
        for path, inode in self._inodes.items():
            # A file that is missing when a supervisor takes over was deleted while none ran.
            if not inode or _inode(path) != inode:
                return path
        return next((path for path in self._worker_sockets() if path is not None and not _inode(path)), None)

    def _worker_sockets(self) -> list[Path | None]:
        working = [
            worker
            for worker in self._peers.of("worker")
            if (known := self._view.worker(worker)) and not known.is_stopping
        ]
        return [self._workers.socket_file(worker) for worker in working]


def _inode(path: Path) -> int:
    """Return the inode number of a file, 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
