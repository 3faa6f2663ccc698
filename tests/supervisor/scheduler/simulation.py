"""A simulation around the scheduler: one method for each event, and how things go on when nothing fails.

A history of events goes in, and after each one everything that must hold is checked.
"""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.engines import EngineReady
from protocol.messages.events import Outcome
from protocol.messages.models import PolicyOverrides
from protocol.messages.work import SubmitRequest
from protocol.models.memory import HOST, Capacity, MemoryEstimate
from protocol.models.nodes import HEAD, NodeFacts
from protocol.worker_states import WorkerState
from supervisor.scheduler.inputs import ModelTarget
from tests.supervisor.scheduler.effect_player import EffectPlayer, spec

NOTHING = MemoryEstimate()
MOVING = frozenset({WorkerState.SPAWNED, WorkerState.CHECKING, WorkerState.LOADING, WorkerState.LEAVING})
"""The states in which a worker carries out an order."""


class Simulation(EffectPlayer):
    def submit(
        self,
        name: str,
        gateway: str = "g1",
        *,
        weight: int = 1,
        suspect: bool = False,
        size: int = 10,
        endpoint: str = "chat/completions",
        caller: str = "",
        ttl: float | None = None,
        digest: str = "",
        options: dict[str, int] | None = None,
        earlier: Outcome | None = None,
        more: bool = False,
        after: RequestKey | None = None,
        payload: bytes = b"",
        batch: bool = False,
    ) -> RequestKey:
        """``options``: it would have the model loaded with them, and without them if that fails."""
        key = RequestKey(gateway, next(self._numbers), 2 if suspect else 1)
        self.live[key] = name
        of = Caller(caller, reserved_tokens=size) if caller else None
        ask = SubmitRequest(
            key.number,
            key.attempt,
            name,
            endpoint,
            "label",
            weight,
            size,
            suspect=suspect,
            caller=of,
            ttl=ttl,
            digest=digest,
            earlier=earlier,
            more=more,
            after=after.number if after else 0,
            batch=batch,
        )
        if after:
            self.scheduler.expect_no_piece_after(gateway, after.number)
        target = ModelTarget(name, "llm", self.spec_of(name))
        if options:
            target = target._replace(spec=spec(name, options=options), fallback=target.spec)
        self.scheduler.request_submitted(key, ask, payload, target, self.now)
        self.settle(light=True)
        return key

    def retry(self, key: RequestKey, *, weight: int = 1, name: str = "a", suspect: bool = True) -> RequestKey:
        again = RequestKey(key.gateway, key.number, key.attempt + 1)
        self.live[again] = name
        ask = SubmitRequest(key.number, again.attempt, name, "chat/completions", "label", weight, suspect=suspect)
        self.scheduler.request_submitted(again, ask, b"", ModelTarget(name, "llm", self.spec_of(name)), self.now)
        self.settle(light=True)
        return again

    def cancel(self, key: RequestKey) -> None:
        self.scheduler.request_cancelled(key, "client gone")
        waiting = any(w.key == key for model in self.state.models.values() for w in model.queue)
        assert not waiting
        if not any(key in worker.running for worker in self.workers.values()):
            self.end(key)
        self.settle(light=True)

    def keep_running_abandoned(self, key: RequestKey) -> None:
        """The client of a running attempt hangs up, and the engine works on: its worker reports that."""
        name, worker = next((name, worker) for name, worker in self.workers.items() if key in worker.running)
        self.cancel(key)
        worker.abandoned.add(key)
        self.scheduler.attempt_abandoned(name, key)
        self.settle(light=True)

    def finish(self, key: RequestKey, code: str = "", ended_at: float | None = None) -> None:
        """``ended_at``: when it really ended, if its worker says so only now."""
        worker = next(worker for worker in self.workers.values() if key in worker.running)
        worker.running.remove(key)
        if code != Code.RETURNED:  # the refusal that follows ends it
            self.end(key)
        assert self.scheduler.attempt_ended(key, code, self.now, ended_at=ended_at) is not None
        self.settle(light=True)

    def load(
        self,
        name: str,
        number: int = 900,
        *,
        plain: bool = False,
        pin: bool | None = None,
        ttl: float | None = None,
        **more: object,
    ) -> None:
        """``plain``: with whatever options; ``pin`` and ``ttl``: what the call says of that."""
        self.calls.add(("g1", number))
        target = ModelTarget(name, "llm", spec(name, **more), PolicyOverrides(pinned=pin, ttl=ttl), plain)
        self.scheduler.load_requested("g1", number, target, self.now)
        self.settle()

    def plan(self, name: str, number: int = 800, **more: object) -> None:
        """Ask what a load would do."""
        self.calls.add(("g1", number))
        self.scheduler.plan_requested("g1", number, spec(name, **more))
        self.settle()

    def pin(self, name: str, pinned: bool = True) -> bool:
        number = -1 - len(self.reports)  # unlike those of all other calls
        self.calls.add(("g1", number))
        done = self.scheduler.overrides_requested("g1", number, name, PolicyOverrides(pinned=pinned))
        if not done:
            self.calls.discard(("g1", number))
        self.settle()
        assert ("g1", number) not in self.calls, "a pin waits for something"
        return done

    def load_missing(self, name: str, number: int, *, provisional: bool = False) -> None:
        """Load a model that is not downloaded."""
        self.calls.add(("g1", number))
        target = ModelTarget(name, "llm", None, provisional=provisional)
        self.scheduler.load_requested("g1", number, target, self.now)
        self.settle()

    def end_download(self, name: str, code: Code | None = None) -> None:
        """A download ends, with success if there is no ``code``."""
        self.downloads.discard(name)
        failure = Failure(code, "no", model=name) if code else None
        self.scheduler.download_ended(name, None if failure else spec(name), failure, self.now)
        self.settle()

    def unload(self, name: str, number: int = 901) -> bool:
        model = self.state.replica_sets.get(name)
        there = model is not None and any(each.worker is not None or each.keep_loaded for each in model.replicas)
        waiting = model is not None and bool(model.queue or model.loaders)
        done = self.scheduler.unload_requested("g1", number, name)
        assert done == (there or waiting)
        if done:
            self.calls.add(("g1", number))
        model = self.state.replica_sets.get(name)
        if model is not None:
            assert not model.loaders, "a call waits for a load that was ended"
            workers = [each.worker for each in model.replicas if each.worker is not None]
            assert all(worker.serves or worker.state is WorkerState.LEAVING for worker in workers)
            assert not model.queue or workers
        self.settle()
        return done

    def abandon_call(self, number: int) -> None:
        """The client of a load or unload hangs up."""
        self.calls.discard(("g1", number))
        self.scheduler.call_abandoned("g1", number)
        self.settle()

    def hello(self, worker: str) -> None:
        self.scheduler.worker_reported(worker)
        self.settle()

    def other_version(self, worker: str, version: int) -> None:
        """A worker says Hello in another version of the protocol."""
        self.scheduler.version_mismatch(worker, version, self.now)
        self.settle()

    def checked(self, worker: str, estimate: MemoryEstimate | None = None) -> None:
        model = self.state.workers[worker].model
        self.scheduler.model_checked(worker, estimate or self.estimates.get(model.name if model else "", NOTHING))
        self.settle()

    def plan_checked(self, worker: str, name: str) -> None:
        """A check for a dry run ends."""
        self.scheduler.model_checked(worker, self.estimates.get(name, NOTHING))
        self.settle()

    def touch(self, worker: str, share: float) -> None:
        """An engine takes this share of the memory that it was started with."""
        its = self.workers[worker]
        its.held = {place: int(bytes_ * share) for place, bytes_ in its.need.items()}

    def ready(self, worker: str) -> None:
        self.touch(worker, 1.0)
        self.scheduler.engine_ready(worker, EngineReady(self.slots, 4096, 1, "http://127.0.0.1:1", 0.1), self.now)
        self.settle()

    def load_fails(self, worker: str, failure: Failure | None = None) -> None:
        self.workers[worker].held = {}
        self.scheduler.load_failed(worker, failure or Failure(Code.LOAD_FAILED, "no"), self.now)
        self.settle()

    def engine_dies(
        self, worker: str, *, of_requests: bool = False, code: Code = Code.BACKEND_DIED, killed: bool = False
    ) -> list[RequestKey]:
        """``of_requests``: it died of one of those that it worked on. ``killed``: by a signal from outside."""
        lost = self.workers[worker].running
        self.workers[worker].running = []
        self.workers[worker].held = {}
        for key in lost:
            self.end(key)
        failure = Failure(code, "SIGSEGV" if of_requests else "SIGKILL")
        self.scheduler.engine_died(worker, failure, self.now, lost if of_requests else [], killed=killed)
        self.settle()
        return lost

    def worker_dies(self, worker: str) -> list[RequestKey]:
        lost = self.workers.pop(worker).running
        for key in lost:
            self.end(key)
        self.scheduler.worker_gone(worker, Failure(Code.WORKER_GONE, "SIGKILL"), self.now)
        self.settle()
        return lost

    def gateway_dies(self, gateway: str) -> None:
        self.scheduler.gateway_gone(gateway)
        self.calls = {call for call in self.calls if call[0] != gateway}
        for key in [key for key in self.live if key.gateway == gateway]:
            if not any(key in worker.running for worker in self.workers.values()):
                self.end(key)
        self.settle()

    def join(self, name: str, *, machine: dict[str, int] | None = None, **facts: object) -> None:
        """A node joins; it has this memory."""
        self.machines[name] = machine or {}
        self.scheduler.node_joined(NodeFacts(name, **facts), self.now)
        self.settle()

    def copied(self, name: str, node: str, failure: Failure | None = None) -> None:
        """The files of a model have reached a node, or not."""
        self.copies.remove((name, node))
        if failure is None:
            self.lacking.discard((name, node))
        self.scheduler.files_fetched(name, node, failure, self.now)
        self.settle()

    def drain(self, name: str, *, draining: bool = True) -> None:
        self.scheduler.node_drains(name, draining)
        self.settle()

    def node_dies(self, name: str) -> list[RequestKey]:
        """A node is lost, and every worker on it: their ends are told first."""
        self.cut_off.discard(name)
        failure = Failure(Code.NODE_LOST, f"node {name} is not reachable")
        lost = [key for worker in self.workers.values() if worker.node == name for key in worker.running]
        for worker in [worker for worker, its in self.workers.items() if its.node == name]:
            for key in self.workers.pop(worker).running:
                self.end(key)
            self.scheduler.worker_gone(worker, failure, self.now)
        self.scheduler.node_left(name, failure, self.now, may_return=True)
        self.settle()
        return lost

    def memory_is_short(self) -> None:
        self.scheduler.memory_short(HEAD, Capacity(HOST, 1000, 20), {"place": "the machine"}, self.now)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    def go_on(self, worker: str) -> None:
        """A worker carries out its order with success."""
        match self.state.workers[worker].state:
            case WorkerState.SPAWNED:
                self.hello(worker)
            case WorkerState.CHECKING:
                self.checked(worker)
            case WorkerState.LOADING:
                self.ready(worker)
            case WorkerState.LEAVING:
                self.worker_dies(worker)

    def advance(self) -> bool:
        """Make the next worker carry out its order with success; return whether anything happened."""
        moving = [
            each for each in self.state.workers.values() if each.state in MOVING and each.node not in self.cut_off
        ]
        if moving:
            self.go_on(moving[0].id)
        return bool(moving)

    def advance_to(self, state: WorkerState) -> None:
        """Make the workers continue until one has this state."""
        for _ in range(100):
            if self.of_state(state):
                return
            assert self.advance(), f"no worker becomes {state}"

    def run_until_idle(self) -> None:
        """Make the workers continue until nothing changes, without ending any request."""
        for _ in range(1000):
            if not self.advance():
                return
        raise AssertionError("the simulation does not come to rest")


def loaded(*names: str, models: int = 1, **more: object) -> Simulation:
    sim = Simulation(models, **more)
    for index, name in enumerate(names):
        sim.load(name, 500 + index)
        sim.run_until_idle()
    return sim
