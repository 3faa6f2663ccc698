"""The worker processes: started and killed by name. Each says where it publishes its events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from protocol.runtime.process_context import FINGERPRINT_VARIABLE, PEER_VARIABLE, ProcessContext
from protocol.wire import endpoints
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.setting_effects import release_of
from supervisor.processes.surviving_processes import SurvivingProcess


class WorkerProcesses:
    """Starts, kills and reports workers. The scheduler decides when."""

    def __init__(
        self,
        processes: ChildProcesses,
        process_context: ProcessContext,
        fingerprint: str = "",
    ) -> None:
        """``fingerprint``: of the settings and the release that workers get at their start."""
        self._processes, self._context, self._fingerprint = processes, process_context, fingerprint
        self.on_ended: Callable[[str, str], None] = lambda _worker, _why: None
        """Called with the name of each worker that has ended, and why."""
        self._outdated: set[str] = set()
        self._children: dict[str, ChildProcess] = {}
        self._endpoints: dict[str, str] = {}

    def start(self, worker: str) -> None:
        """Start a worker's process under this name."""
        ended = partial(self._ended, worker)
        self._children[worker] = self._processes.start(
            "worker", "workers", ended, {PEER_VARIABLE: worker, FINGERPRINT_VARIABLE: self._fingerprint}
        )

    def adopt(self, survivor: SurvivingProcess) -> None:
        """Take over a worker that an earlier supervisor started."""
        if survivor.fingerprint != self._fingerprint:
            self._outdated.add(survivor.peer)
        ended = partial(self._ended, survivor.peer)
        self._children[survivor.peer] = self._processes.adopt(survivor, ended)

    def may_have_model(self, survivor: SurvivingProcess) -> bool:
        """Return whether a worker of an earlier supervisor may have more to report than that it has started."""
        # How another release marks those that were welcomed is not known.
        return survivor.welcomed or release_of(survivor.fingerprint) != release_of(self._fingerprint)

    def is_outdated(self, worker: str) -> bool:
        """Return whether a worker was started with other settings, or by another release."""
        return worker in self._outdated

    def kill(self, worker: str) -> None:
        """Kill a worker, if it still runs. Everything else follows from its end."""
        child = self._children.get(worker)
        if child is not None:
            self._processes.kill(child)

    def names(self) -> list[str]:
        """Return the workers whose processes run."""
        return list(self._children)

    def pid(self, worker: str) -> int:
        """Return a worker's pid, 0 if it has ended."""
        child = self._children.get(worker)
        return child.pid if child is not None else 0

    def publishes_at(self, worker: str, endpoint: str) -> None:
        """Note at which endpoint a worker publishes its events, as its Hello says."""
        self._endpoints[worker] = endpoint

    def endpoint(self, worker: str) -> str:
        """Return the endpoint at which a worker publishes its events, empty before it has said so."""
        return self._endpoints.get(worker, "")

    def socket_file(self, worker: str) -> Path | None:
        """Return the file of a worker's socket, None before the worker has reported it."""
        file = endpoints.socket_file(self.endpoint(worker))
        return file if file.parent == self._context.runtime else None

    def _ended(self, worker: str, why: str) -> None:
        self._children.pop(worker, None)
        self._outdated.discard(worker)
        try:
            self.on_ended(worker, why)
        finally:
            if file := self.socket_file(worker):
                file.unlink(missing_ok=True)
            self._endpoints.pop(worker, None)
