"""What must hold in a small world after each event, by what its workers really do and not by what the scheduler believes."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.engines import CheckModel, StartEngine
from protocol.messages.work import Refused, Run
from protocol.models.memory import HOST
from supervisor.scheduler.effects import Effect, FetchFiles, SpawnWorker
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.scheduler import Scheduler
from tests.supervisor.scheduler import invariants
from tests.supervisor.scheduler.simulation import Simulation


class StartedEngine(NamedTuple):
    """An engine that a worker was told to start."""

    model: str
    replica: int
    bytes: int


class CheckedWorld(Simulation):
    """A simulation that notes what is true in it. It has no twin: that takes time."""

    scheduler_type = Scheduler
    plan: object

    def __init__(self, *given: object, **limits: object) -> None:
        self.engines: dict[str, StartedEngine] = {}
        """Worker → its engine, from its start to its end."""
        self.answering: set[str] = set()
        """The workers whose engines answer."""
        self.gone: set[str] = set()
        """Gateways that are gone."""
        self.may_refuse: set[Code] = set()
        """What has happened that is a reason to refuse requests."""
        self.moved = False
        """Whether a node was drained, so that a model may be loaded on the other one before it leaves this one."""
        self.old_words: list[tuple[str, RequestKey]] = []
        """(worker, attempt) that ran on a node when it was lost."""
        super().__init__(*given, **limits)

    def check(self) -> None:
        """The explorer checks each state once: see :meth:`check_all`."""

    def check_all(self) -> None:
        super().check()
        self._check_engines()
        self._check_replicas()

    # ---- what workers are told ---------------------------------------------------------------------------------------

    def _play(self, effect: Effect) -> None:
        if isinstance(effect, SpawnWorker | FetchFiles):
            assert effect.node in self.state.nodes, f"a node that is lost is used: {effect}"
        super()._play(effect)

    def deliver(self, peer: str, message: object) -> None:
        match message:
            case Run(model=model):
                assert peer in self.workers, "a request is granted on a node that is lost"
                assert peer in self.answering, "a request is granted to an engine that does not answer"
                assert self.engines[peer].model == model, "a request is granted to the engine of another model"
            case CheckModel() | StartEngine():
                node = self.workers[peer].node
                assert node in self.state.nodes, "a model is loaded on a node that is lost"
                if isinstance(message, CheckModel):
                    assert not self.state.nodes[node].draining, "a model is loaded on a node that drains"
                else:
                    assert (message.spec.name, node) not in self.lacking, (
                        "a model is loaded where its files are missing"
                    )
                    self.engines[peer] = StartedEngine(message.spec.name, message.replica, message.need.get(HOST, 0))
            case Refused(attempt=attempt, failure=failure) if attempt:
                self._check_refusal(failure)
        super().deliver(peer, message)

    def ready(self, worker: str) -> None:
        self.answering.add(worker)
        super().ready(worker)

    def load_fails(self, worker: str, failure: Failure | None = None) -> None:
        self._ended(worker)
        super().load_fails(worker, failure)

    def engine_dies(self, worker: str, **how: object) -> list[RequestKey]:
        self._ended(worker)
        return super().engine_dies(worker, **how)

    def worker_dies(self, worker: str) -> list[RequestKey]:
        self._ended(worker)
        return super().worker_dies(worker)

    def node_dies(self, name: str) -> list[RequestKey]:
        for worker, its in self.workers.items():
            if its.node == name:
                self._ended(worker)
                self.old_words += [(worker, key) for key in its.running]
        self.copies = [copy for copy in self.copies if copy[1] != name]
        lost = super().node_dies(name)
        assert not any(each.node == name for each in self.state.workers.values()), "a worker is left of a lost node"
        return lost

    def gateway_dies(self, gateway: str) -> None:
        self.gone.add(gateway)
        super().gateway_dies(gateway)

    def hear_old_words(self) -> None:
        """The node that is back says what it had to say before it was lost: that changes nothing."""
        for worker, key in self.old_words:
            self.scheduler.attempt_abandoned(worker, key)
            assert self.scheduler.attempt_ended(key, "", self.now) is None, "an attempt has ended that was lost"
        assert not self.scheduler.effects(), "the words of a lost node have an effect"
        self.old_words = []
        self.settle()

    def _ended(self, worker: str) -> None:
        self.engines.pop(worker, None)
        self.answering.discard(worker)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    def _check_engines(self) -> None:
        """No model is loaded twice, and the engines of each node fit there."""
        keys = Counter((engine.model, engine.replica) for engine in self.engines.values())
        assert max(keys.values(), default=0) < 2, f"a model is loaded twice: {keys}"
        for name in self.state.nodes:
            here = [engine for worker, engine in self.engines.items() if self.workers[worker].node == name]
            assert len(here) <= self.plan.loaded, f"more models are loaded on {name} than may be: {here}"
            if self.plan.memory:
                taken = sum(engine.bytes for engine in here)
                assert taken <= self.plan.memory, f"more memory of {name} is taken than there is: {here}"
        for engine in self.engines.values():
            assert not self.plan.memory or engine.bytes == self.estimates[engine.model].places[HOST].fixed

    def _check_replicas(self) -> None:
        """The number of replicas is within its bounds, and they leave one after the other."""
        running = Counter(engine.model for engine in self.engines.values())
        for name, of in self.state.replica_sets.items():
            most = of.policy.max_replicas
            assert running[name] <= most + self.moved, f"{running[name]} engines of {name} run, at most {most} may"
            wanted = of.scaling.wanted
            assert of.policy.min_replicas <= wanted <= most, (
                f"{wanted} engines of {name} are wanted, at most {most} may be"
            )
            leaving = [each for each in of.replicas if each.state in (ModelState.DRAINING, ModelState.UNLOADING)]
            asked = any(each.unloaders for each in of.replicas)
            assert len(leaving) < 2 or asked or self.moved, f"{len(leaving)} engines of {name} leave at once"

    def _check_refusal(self, failure: Failure) -> None:
        """What a client is told is true."""
        if failure.code in self.may_refuse:
            return
        model = failure.model
        assert model in self.plan.requests, f"a refusal names no model: {failure}"
        match failure.code:
            case Code.NO_NODE:
                wanted = self.plan.only_on.get(model)
                fit = [name for name, node in self.state.nodes.items() if not node.draining and wanted in (None, name)]
                assert not fit, f"{model} can run on {fit}: {failure}"
            case Code.INSUFFICIENT_MEMORY:
                assert self.estimates[model].places[HOST].fixed > self.plan.memory > 0, f"there is memory: {failure}"
            case Code.ALL_PINNED:
                assert self.plan.pinned, f"nothing is pinned: {failure}"
            case _:
                raise AssertionError(f"a request is refused without a reason: {failure}")

    # ---- rest --------------------------------------------------------------------------------------------------------

    def is_waiting(self, but: str = "") -> bool:
        """Return whether something has still to come: an answer, the end of a drain, a replica. ``but``: not for this node."""
        if but:
            return any(self.plan.only_on[name] != but for name in self.live.values())
        nodes, workers = self.state.nodes, self.state.workers.values()
        leaving = any(each.model is not None and nodes[each.node].draining for each in workers)
        return bool(self.live or self.calls or leaving or self._too_few())

    def unanswered(self) -> str:
        """Return what has still to come, in words."""
        drains = [f"{each.id} on {each.node}" for each in self.state.workers.values() if each.model is not None]
        return f"requests {sorted(self.live)}, calls {self.calls}, replicas {self._too_few()}, workers {drains}"

    def _too_few(self) -> list[str]:
        """Return the models of which too few engines run although all can be loaded."""
        sets = self.state.replica_sets.values()
        capacity = sum(not node.draining for node in self.state.nodes.values()) * self.plan.loaded
        if sum(of.policy.min_replicas for of in sets) > capacity:
            return []
        engines = Counter(engine.model for engine in self.engines.values())
        return [of.name for of in sets if 0 < engines[of.name] < of.policy.min_replicas]

    def check_at_rest(self, but: str = "") -> None:
        """Nothing is left over. ``but``: on this node, nothing went on."""
        self.check_all()
        if not but:
            assert self.scheduler.view.busy == 0
            invariants.check_policies_at_rest(self.scheduler)
