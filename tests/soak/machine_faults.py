"""Faults on one machine: processes of the server are killed, or stopped for a while."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Final

from tests.soak.history import History
from tests.support import processes
from tests.support.server import LemonbusServer

PAUSES_S: Final = (0.3, 1.0, 2.5)
STOPS_S: Final = (0.05, 0.5, 2.0, 6.0)
"""How long a process is stopped. After more than ``peer_silence``, the supervisor kills and replaces it."""


def stop_for(pid: int, seconds: float, end: threading.Event) -> None:
    """Stop a process for so long, or until the end. It may be gone before, or end meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            end.wait(seconds)
        finally:
            if processes.alive(pid):
                os.kill(pid, signal.SIGCONT)


class MachineFaults(threading.Thread):
    """Kills and stops processes at random moments. It leaves no process stopped behind."""

    def __init__(self, server: LemonbusServer, seed: int, end: threading.Event, history: History) -> None:
        """Make its choices from ``seed``."""
        super().__init__(name="faults", daemon=True)
        self._server = server
        self._random = random.Random(seed)
        self._end = end
        self._history = history

    def run(self) -> None:
        """Inject faults until the end."""
        targets: dict[str, Callable[[], list[int]]] = {
            "engine": self._engines,
            "worker": self._workers,
            "gateway": self._server.gateway_pids,
            "gunicorn master": lambda: [pid for pid in (self._server.gateway_master(),) if pid],
            "supervisor": lambda: [self._server.supervisor_pid],
        }
        names = list(targets)
        while not self._end.wait(self._random.choice(PAUSES_S)):
            name = self._random.choices(names, (6, 4, 2, 1, 4))[0]
            pids = targets[name]()
            if not pids:
                continue
            pid = self._random.choice(sorted(pids))
            kill = self._random.random() < 0.6
            self._history.count(f"{'killed' if kill else 'stopped'} {name}")
            with contextlib.suppress(ProcessLookupError):
                if kill:
                    processes.kill(pid)
                else:
                    stop_for(pid, self._random.choice(STOPS_S), self._end)

    def _workers(self) -> list[int]:
        return [worker.pid for worker in self._server.workers()]

    def _engines(self) -> list[int]:
        return [engine.pid for worker in self._server.workers() for engine in processes.children(worker.pid)]
