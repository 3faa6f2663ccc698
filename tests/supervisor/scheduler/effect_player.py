"""Carries out the scheduler's effects with simulated workers. No process, no socket, no clock."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.engines import CheckModel, StartEngine
from protocol.messages.peers import Shutdown
from protocol.messages.recovery import RememberState
from protocol.messages.work import Cancel, QueueStatus, Refused, Run
from protocol.models.memory import Capacity, MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.scheduler.effects import (
    AnswerCall,
    Effect,
    FetchFiles,
    FetchModel,
    ForgetModel,
    KillAfter,
    KillWorker,
    LogDecision,
    NoteDeath,
    NotifyGrant,
    RequestResources,
    SendMessage,
    SpawnWorker,
)
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.policy import FixedPolicies
from supervisor.scheduler.scheduler import Scheduler
from supervisor.scheduler.state import SchedulerState
from tests.supervisor.scheduler import invariants
from tests.supervisor.scheduler.simulated_worker import SimulatedWorker
from tests.supervisor.scheduler.twin_scheduler import TwinScheduler

SLOTS = 2
NO_POLICIES = FixedPolicies()


def spec(name: str, **more: object) -> ModelSpec:
    """Return a model. The engine of a model called c keeps nothing between requests."""
    more = {"restartable": name == "c", **more}
    return ModelSpec(name, f"checkpoint/{name}", "llamacpp", "cpu", "llm", f"/models/{name}.gguf", **more)


class EffectPlayer:
    scheduler_type: type[Scheduler] = TwinScheduler

    def __init__(
        self, models: int = 1, slots: int = SLOTS, policies: FixedPolicies = NO_POLICIES, **limits: object
    ) -> None:
        self.now = 0.0
        self.slots = slots
        self._names = itertools.count(1)
        limits_ = SchedulerLimits(models=models, **limits)
        self.machine: dict[str, int] = {}
        """Bytes of the head by place; of places without any, there is enough."""
        self.machines = {HEAD: self.machine}
        """The same of each node."""
        self.others: dict[str, int] = {}
        """What other programs hold."""
        self.estimates: dict[str, MemoryEstimate] = {}
        """Model → what its check finds; others need nothing."""
        self.scheduler = self.scheduler_type(limits_, self.new_worker, policies=policies, files=self)
        self.before_change = invariants.BeforeChange()
        """What was loaded and busy when the policies were changed last: it may go on."""
        self.workers: dict[str, SimulatedWorker] = {}
        self.ended: Counter[RequestKey] = Counter()
        self.refusals: dict[RequestKey, Failure] = {}
        self.reports: dict[tuple[str, int], object] = {}
        self.live: dict[RequestKey, str] = {}
        self.positions: dict[RequestKey, int] = {}
        """The queue's position that gateways were told."""
        self.order: list[RequestKey] = []
        """The order in which requests reached a worker."""
        self.calls: set[tuple[str, int]] = set()
        """Load and unload calls that have no answer yet: peer, number."""
        self.fetches: list[str] = []
        self.copies: list[tuple[str, str]] = []
        """Models whose files are to be copied, and the nodes that lack them."""
        self.requested: list[Mapping[str, float]] = []
        """What the cluster engine was asked for last."""
        self.lacking: set[tuple[str, str]] = set()
        """(model, node): the node has not got the files of the model."""
        self.cut_off: set[str] = set()
        """Nodes whose links are broken, which the supervisor does not know yet."""
        self.downloads: set[str] = set()
        """Models that are being downloaded."""
        self.killed: list[str] = []
        self.forgotten: list[str] = []
        self.notes: list[LogDecision] = []
        self.deaths: list[tuple[str, str]] = []
        """Model and reason of each death that is to be remembered."""
        self._numbers = itertools.count(1)
        self.settle()

    def new_worker(self) -> str:
        """Name the next worker: the scheduler asks this."""
        return f"w{next(self._names)}"

    def spec_of(self, model: str) -> ModelSpec:
        """Return what requests have a model loaded with."""
        return spec(model)

    def has(self, node: str, spec: ModelSpec) -> bool:
        """Return whether a node has the files of a model: the scheduler asks this."""
        return (spec.name, node) not in self.lacking

    @property
    def state(self) -> SchedulerState:
        return self.scheduler._state

    def read_memory(self, node: str = HEAD) -> None:
        held = {name: worker.held for name, worker in self.workers.items() if worker.node == node and worker.held}
        machine = self.machine if node == HEAD else self.machines[node]
        others = self.others if node == HEAD else {}
        capacities = [
            Capacity(place, total, total - others.get(place, 0) - sum(each.get(place, 0) for each in held.values()))
            for place, total in machine.items()
        ]
        self.scheduler.memory_read(node, capacities, held, self.now)

    def settle(self, *, light: bool = False) -> None:
        if not (light and self.scheduler.view.settled):
            for node in self.scheduler.view.wants_memory(self.now):
                if node not in self.cut_off:
                    self.read_memory(node)
            self.scheduler.reconcile(self.now)
        effects = self.scheduler.effects()
        for count, effect in enumerate(effects, start=1):
            if isinstance(effect, AnswerCall):
                invariants.check_promise(self.state.replica_sets, self.workers, effect, effects[count:])
            self._play(effect)
        if self.state.settled:
            self.scheduler.reconcile(self.now)
            assert not self.scheduler.effects(), "a settled state had something to do"
        self.check()

    def _play(self, effect: Effect) -> None:  # noqa: C901 - one case for each effect
        match effect:
            case SpawnWorker(worker, node):
                self.workers[worker] = SimulatedWorker(node)
            case SendMessage(peer, message, _):
                self.deliver(peer, message)
            case AnswerCall(peer, number, report):
                assert (peer, number) not in self.reports, "answered twice"
                self.reports[peer, number] = report
                self.calls.discard((peer, number))
            case FetchModel(model):
                self.fetches.append(model)
                self.downloads.add(model)
            case FetchFiles(model, _, node):
                self.copies.append((model, node))
            case RequestResources(bundles):
                self.requested = list(bundles)
            case ForgetModel(model):
                self.forgotten.append(model)
            case LogDecision():
                self.notes.append(effect)
            case NoteDeath(model, failure):
                self.deaths.append((model, failure.code))
            case KillWorker(worker):
                self.killed.append(worker)
            case KillAfter() | NotifyGrant():
                pass

    def deliver(self, peer: str, message: object) -> None:
        match message:
            case Run(gateway, number, attempt):
                key = RequestKey(gateway, number, attempt)
                assert key in self.live, "an ended request was started"
                self.workers[peer].running.append(key)
                self.order.append(key)
            case Shutdown():
                its = self.workers[peer]
                assert its.abandoned.issuperset(its.running), "a worker was stopped while a client waits for it"
                self.workers[peer].commands.append(message)
            case QueueStatus(number, attempt, position):
                self.positions[RequestKey(peer, number, attempt)] = position
            case StartEngine(_, _, need):
                self.workers[peer].need = dict(need)
                self.workers[peer].commands.append(message)
            case CheckModel() | Cancel() | RememberState():
                self.workers[peer].commands.append(message)
            case Refused(number, attempt, failure):
                key = RequestKey(peer, number, attempt)
                self.refusals[key] = failure
                if any(key in worker.running for worker in self.workers.values()):
                    assert failure.code is Code.BATCH_WAITS, "it gives its slot to another one when its engine stops"
                elif attempt:
                    self.end(key)
                else:
                    self.calls.discard((peer, number))
            case _:
                raise AssertionError(message)

    def end(self, key: RequestKey) -> None:
        self.ended[key] += 1
        self.live.pop(key, None)

    def of_state(self, *states: WorkerState) -> list[str]:
        return [worker.id for worker in self.state.workers.values() if worker.state in states]

    def serving(self, model: str) -> str:
        worker = self.state.models[model].worker
        assert worker is not None
        return worker.id

    def check(self) -> None:
        """Compare what the scheduler believes with what the workers are really doing."""
        invariants.check_models(self.scheduler, self.workers, self.slots)
        invariants.check_policies(self.scheduler, self.before_change)
        invariants.check_index(self.scheduler)
        invariants.check_requests(self.scheduler, self.workers, self.ended, self.live)
