"""The scheduler's state: everything loaded, running and waiting, and the effects that are still to be carried out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.engines import LoadProgressed
from protocol.messages.peers import Shutdown
from protocol.messages.work import Refused
from protocol.models.nodes import HEAD, NodeFacts
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.scheduler.backoff import FailedChecks
from supervisor.scheduler.crash_record import CrashRecord
from supervisor.scheduler.effects import Effect, KillAfter, KillWorker, SendMessage
from supervisor.scheduler.inputs import FileLocations, SchedulerLimits
from supervisor.scheduler.nodes.node_bounds import BoundFigures
from supervisor.scheduler.nodes.reservations import EvictionClaim, LoadReservations
from supervisor.scheduler.nodes.unmet_demand import UnmetDemand
from supervisor.scheduler.policy import FixedPolicies, PolicySource
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel
from supervisor.scheduler.scheduled_worker import Eviction, PendingPlan, ScheduledWorker
from supervisor.scheduler.scheduler_node import LostNode, SchedulerNode
from supervisor.scheduler.state_index import StateIndex

MAX_PAST_USES: Final = 256
"""For how many models that are not loaded the time of last use is remembered."""
MAX_PLAN_CHECKS: Final = 4
"""Dry runs that are checked at the same time, because each check takes a process."""
_STOP_GRACE_S: Final = 5.0


class EndedEviction(NamedTuple):
    """An evicted model whose engine is gone."""

    model: str
    eviction: Eviction
    node: str


class SchedulerState:
    """What the scheduler knows, and the effects that are still to be carried out."""

    def __init__(
        self,
        limits: SchedulerLimits,
        new_worker: Callable[[], str],
        metrics: ServerMetrics | None = None,
        policies: PolicySource | None = None,
        files: FileLocations | None = None,
    ) -> None:
        """``new_worker`` names the next worker process; ``metrics`` count what the scheduler does. ``files``: where models are; None: each node has all."""
        self.limits = limits
        self.policies: PolicySource = policies or FixedPolicies()
        self.files = files
        self.new_worker = new_worker
        self.metrics = metrics or ServerMetrics()
        self.replica_sets: dict[str, ReplicaSet] = {}
        """All models that are used or requested, by their registered names."""
        self.models: dict[str, ScheduledModel] = {}
        """Their engines, present and future, by their keys: one for most models."""
        self.workers: dict[str, ScheduledWorker] = {}
        self.index = StateIndex()
        self.closing = False
        self.nodes = {HEAD: SchedulerNode(NodeFacts(HEAD), limits.restarts, self.index)}
        """By name. The head is always there."""
        self.lost_nodes: dict[str, LostNode] = {}
        """Those that may be back; the latest is the last one."""
        self.unmet = UnmetDemand()
        self.copies: dict[tuple[str, str], LoadProgressed] = {}
        """(model, node) → how much of the model's files has reached the node, for those that are on their way."""
        self.plans: list[PendingPlan] = []
        """Dry runs of loads that are not answered yet."""
        self.ended_evictions: list[EndedEviction] = []
        """Evictions that are over, and are logged when the memory has been read again."""
        self.unassigned: Counter[str] = Counter()
        """Node → how many models waited for a worker there at the last reconcile."""
        self.planned: Counter[str] = Counter()
        """The same for dry runs."""
        self.reservations = LoadReservations()
        self.claims: dict[str, EvictionClaim] = {}
        """The claims on models that the last reconcile has found, by key."""
        self.settings_claims: Collection[str] = ()
        """The keys of those that no load has."""
        self.figures: dict[str, BoundFigures] = {}
        """Node → what a load can find there at best, until something changes there."""
        self.nodes_version = 0
        """How often a node has joined or left, or what one says of itself has changed."""
        self.counters: dict[str, int] = {}
        self.past_use: dict[str, float] = {}
        """The time of last use of models that are otherwise forgotten."""
        self.failed_checks = FailedChecks(limits.restarts)
        self.crashes = CrashRecord()
        self.order = itertools.count(1)
        """The order of arrival of everything that may have to wait."""
        self.settled = False
        """Whether nothing waits and nothing moves, so that requests and their ends need no :func:`reconcile`."""
        self.ended_before: dict[RequestKey, str] = {}
        """Attempt → its worker, for attempts that ended before this supervisor took over, if their gateway may not know it."""
        self._out: list[Effect] = []

    @property
    def spawn_problem(self) -> Failure | None:
        """Why worker processes do not start on a node, until one does."""
        return next((node.spawn_problem for node in self.nodes.values() if node.spawn_problem), None)

    def node_of(self, worker: ScheduledWorker) -> SchedulerNode:
        """Return the node of a worker."""
        return self.nodes[worker.node]

    def on_node(self, name: str) -> dict[str, str]:
        """Return what the log says of where something happened: nothing on a server with one machine."""
        return {"node": name} if len(self.nodes) > 1 else {}

    def add_worker(self, worker_id: str, now: float, node: str) -> ScheduledWorker:
        """Add a worker whose process was just started."""
        worker = self.workers[worker_id] = ScheduledWorker(worker_id, now, node, self.worker_moved)
        self.worker_moved(worker, None)
        return worker

    def worker_moved(self, worker: ScheduledWorker, before: WorkerState | None) -> None:
        """A worker has another state; it is new if it had none ``before``."""
        self.index.worker_moved(worker, before)
        node = self.nodes[worker.node]
        node.changed()
        if worker.state is WorkerState.GONE:
            node.workers.pop(worker.id, None)
        else:
            node.workers[worker.id] = worker

    def knows(self, one: ReplicaSet) -> bool:
        """Return whether a model was not forgotten meanwhile; another one may have its name."""
        return self.replica_sets.get(one.name) is one

    def look_at_all(self) -> None:
        """Let the next reconcile look at every model and every node."""
        for each in self.replica_sets.values():
            each.changed()
        for node in self.nodes.values():
            node.changed()

    def due_plans(self) -> list[PendingPlan]:
        """Return the dry runs that may be checked now, in the order in which they came."""
        if not self.plans:
            return []
        checked = sum(worker.plan is not None for worker in self.workers.values())
        return [plan for plan in self.plans if not plan.begun][: max(0, MAX_PLAN_CHECKS - checked)]

    def forget_use(self, name: str) -> None:
        """Forget that a model was used: another one may get its name."""
        self.past_use.pop(name, None)
        for replica in self.replica_sets[name].replicas if name in self.replica_sets else ():
            replica.last_use = NEVER

    def remember_use(self, model: ScheduledModel) -> None:
        """Remember when a model that is about to be forgotten was last used."""
        if model.last_use != NEVER:
            self.past_use[model.name] = model.last_use
        while len(self.past_use) > MAX_PAST_USES:
            del self.past_use[min(self.past_use, key=self.past_use.__getitem__)]

    def effects(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        out, self._out = self._out, []
        return out

    def emit(self, *effects: Effect) -> None:
        """Request an effect."""
        self._out.extend(effects)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that an operator may ask about."""
        self.counters[what] = self.counters.get(what, 0) + number

    def refuse(self, key: RequestKey, failure: Failure) -> None:
        """End an attempt (or a call, with attempt 0) before it reached a worker."""
        self.count(f"refused_{failure.code}")
        self.metrics.attempt_refused(failure.code)
        self.emit(SendMessage(key.gateway, Refused(key.number, key.attempt, failure)))

    def stop_worker(self, worker: ScheduledWorker, *, reason: str = "") -> None:
        """Tell a worker to leave, and kill it if it does not."""
        self.emit(SendMessage(worker.id, Shutdown(0.0, reason)))
        self.expect_end(worker)

    def expect_end(self, worker: ScheduledWorker) -> None:
        """Kill a worker that was told to leave, if it does not. Its engine takes no more memory than it holds now."""
        self.node_of(worker).memory.changed()
        worker.transition(WorkerEvent.STOP)
        seconds = _STOP_GRACE_S + (worker.facts.leave_seconds if worker.facts else 0.0)
        self.emit(KillAfter(worker.id, seconds))

    def kill_worker(self, worker: ScheduledWorker) -> None:
        """End a worker that reads no messages yet."""
        worker.transition(WorkerEvent.STOP)
        self.emit(KillWorker(worker.id))
