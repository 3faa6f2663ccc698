"""The workers of an earlier supervisor: what they have reported becomes the state of the scheduler.

`takeover` waits for their reports and kills those that send none; :mod:`supervisor.scheduler.recovery` has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.ids import RequestKey
from protocol.messages.peers import Hello
from protocol.messages.recovery import GatewaySnapshot, WorkerSnapshot
from protocol.models.recipes import ModelSpec
from protocol.runtime.loop import Loop
from supervisor.internal_errors import InternalErrors
from supervisor.models.registry import ModelRegistry
from supervisor.processes.placement import Survivor
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.scheduler.recovery.joined_snapshots import join_snapshots, known_attempts
from supervisor.scheduler.recovery.recovery_events import World
from supervisor.scheduler.scheduler import Scheduler
from supervisor.usage.accounting import Accounting


class TakenOverWorkers:
    """The workers that outlived a supervisor."""

    def __init__(
        self,
        loop: Loop,
        workers: WorkerProcesses,
        models: ModelRegistry,
        scheduler: Scheduler,
        accounting: Accounting,
        errors: InternalErrors,
        has_files: Callable[[str, ModelSpec, Mapping[str, str]], None],
        *,
        counted: bool = False,
    ) -> None:
        """None is adopted yet. ``has_files`` is told which model runs on another node, with the paths of its files there.

        ``counted``: what they have ended was counted by a server that has died. Which ends it had not counted yet is not known.
        """
        self._has_files, self._counted = has_files, counted
        self._loop, self._processes, self._models = loop, workers, models
        self._scheduler, self._accounting, self._errors = scheduler, accounting, errors
        self._snapshots: dict[str, WorkerSnapshot] = {}
        self._starting: set[str] = set()
        """Workers that have not said Hello to any supervisor."""

    def adopt(self, survivor: Survivor) -> bool:
        """Watch a worker from now on; return whether it may have more to report than that it has started."""
        self._processes.adopt(survivor)
        if self._processes.may_have_model(survivor):
            return True
        self._starting.add(survivor.peer)
        return False

    def names(self) -> list[str]:
        """Return those that run, whether they have reported or not."""
        return self._processes.names()

    def reported(self) -> list[str]:
        """Return those that have reported."""
        return list(self._snapshots)

    def report(self, worker: str, snapshot: WorkerSnapshot) -> None:
        """Note what a worker does."""
        self._snapshots[worker] = snapshot

    def forget(self, worker: str) -> None:
        """Forget what a worker has reported: it has ended, or begins anew."""
        self._snapshots.pop(worker, None)

    def ended(self, worker: str) -> None:
        """Forget a worker that has ended."""
        self.forget(worker)
        self._starting.discard(worker)

    def publishes_at(self, worker: str, hello: Hello) -> None:
        """Note at which endpoints a worker publishes its events, as its Hello says."""
        self._processes.publishes_at(worker, hello)

    def endpoint(self, worker: str, node: str) -> str:
        """Return the endpoint at which a worker publishes its events for a gateway on a node, empty before it has said so."""
        return self._processes.endpoint(worker, node)

    def known_attempts(self) -> set[RequestKey]:
        """Return the attempts that these workers run, or have ended."""
        return known_attempts(self._snapshots)

    def take_over(self, gateways: Mapping[str, GatewaySnapshot], arrivals: Mapping[str, float]) -> World:
        """Tell the scheduler what runs. If our own code raises, begin anew without this, rather than not at all.

        ``arrivals``: when each snapshot arrived.
        """
        try:
            starting = sorted(self._starting - self._snapshots.keys())
            world = join_snapshots(self._snapshots, gateways, arrivals, starting, self._processes.nodes())
            self._models.restore([running.spec for running in world.workers if running.spec is not None])
            for worker, snapshot in self._snapshots.items():
                if snapshot.spec is not None and snapshot.paths:
                    self._has_files(worker, snapshot.spec, snapshot.paths)
            self._scheduler.recovered(world, self._loop.now())
            for worker, snapshot in self._snapshots.items():
                for end in snapshot.ended if not self._counted else ():
                    self._accounting.attempt_ended(worker, end)
        except Exception as problem:  # noqa: BLE001 - logged and counted
            self._errors.failure_of(problem, where="recovery")
            for worker in self._processes.names():
                self._processes.kill(worker)
            return World()
        return world
