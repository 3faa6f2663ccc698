"""What can happen to a scheduler, as the rules of random histories."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.times import NEVER_UNLOADED
from protocol.worker_states import WorkerState
from supervisor.scheduler.policy import FixedPolicies, GroupPolicy, ModelPolicy
from tests.supervisor.scheduler import invariants
from tests.supervisor.scheduler.effect_player import NO_POLICIES
from tests.supervisor.scheduler.simulation import Simulation

MODELS = st.sampled_from("abc")


def model_policy(replicas: tuple[int, int], **more: object) -> ModelPolicy:
    """``replicas``: the least and the greatest number."""
    return ModelPolicy(min_replicas=replicas[0], max_replicas=replicas[1], **more)


MODEL_POLICIES = st.builds(
    model_policy,
    replicas=st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)]),
    ttl=st.sampled_from([NEVER_UNLOADED, NEVER_UNLOADED, 20.0]),
    pin=st.sampled_from([False, False, True]),
    concurrency=st.integers(0, 3),
    queue=st.sampled_from([0, 0, 2]),
    groups=st.frozensets(st.sampled_from(["g", "h"])),
)
GROUP_POLICIES = st.builds(
    GroupPolicy, exclusive=st.booleans(), swap=st.sampled_from([False, False, True]), max_loaded=st.integers(0, 2)
)
POLICIES = st.builds(
    FixedPolicies,
    models=st.dictionaries(MODELS, MODEL_POLICIES),
    groups=st.fixed_dictionaries({"g": GROUP_POLICIES}, optional={"h": GROUP_POLICIES}),
)
GATEWAYS = st.sampled_from(["g1", "g2"])


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[tuple[RequestKey, str]] = []
        """Pieces of long lists after which another one comes, and their models."""

    @initialize(models=st.integers(1, 3), slots=st.sampled_from([2, 4]), policies=st.just(NO_POLICIES) | POLICIES)
    def open(self, models: int, slots: int, policies: FixedPolicies) -> None:
        self.sim = Simulation(models, slots, policies, queue_requests=5)
        self.calls = 1000

    def pick(self, data: st.DataObject, what: list[object]) -> object:
        return data.draw(st.sampled_from(what))

    def running(self) -> list[object]:
        return [key for worker in self.sim.workers.values() for key in worker.running]

    def workers(self, *states: WorkerState) -> list[str]:
        return self.sim.of_state(*states)

    @rule(
        model=MODELS,
        gateway=GATEWAYS,
        weight=st.integers(0, 3),
        suspect=st.booleans(),
        ttl=st.sampled_from([None, None, None, 0.0, 30.0]),
        caller=st.sampled_from(["", "", "k1", "k2"]),
        more=st.booleans(),
    )
    def submit(
        self, model: str, gateway: str, weight: int, suspect: bool, ttl: float | None, caller: str, more: bool
    ) -> None:
        more = more and not suspect
        key = self.sim.submit(model, gateway, weight=weight, suspect=suspect, ttl=ttl, caller=caller, more=more)
        if more:
            self.pieces.append((key, model))

    @precondition(lambda self: self.pieces)
    @rule(data=st.data(), more=st.booleans())
    def submit_next_piece(self, data: st.DataObject, more: bool) -> None:
        last, model = self.pieces.pop(self.pick(data, list(range(len(self.pieces)))))
        key = self.sim.submit(model, last.gateway, after=last, more=more)
        if more:
            self.pieces.append((key, model))

    @precondition(lambda self: self.sim.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.sim.cancel(self.pick(data, list(self.sim.live)))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), code=st.sampled_from(["", "", "", "returned", "backend_error"]))
    def finish(self, data: st.DataObject, code: str) -> None:
        self.sim.finish(self.pick(data, self.running()), code)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def keep_running_abandoned(self, data: st.DataObject) -> None:
        self.sim.keep_running_abandoned(self.pick(data, self.running()))

    @rule()
    def advance(self) -> None:
        self.sim.advance()

    @precondition(lambda self: self.workers(WorkerState.CHECKING, WorkerState.LOADING))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.workers(WorkerState.CHECKING, WorkerState.LOADING))
        self.sim.load_fails(worker)

    @precondition(lambda self: self.workers(WorkerState.READY, WorkerState.DRAINING, WorkerState.LEAVING))
    @rule(data=st.data(), code=st.sampled_from([Code.BACKEND_DIED, Code.OUT_OF_MEMORY]), killed=st.booleans())
    def engine_dies(self, data: st.DataObject, code: Code, killed: bool) -> None:
        self.sim.engine_dies(
            self.pick(data, self.workers(WorkerState.READY, WorkerState.DRAINING, WorkerState.LEAVING)),
            code=code,
            killed=killed,
        )

    @precondition(lambda self: self.sim.state.workers)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        self.sim.worker_dies(self.pick(data, list(self.sim.state.workers)))

    @rule()
    def memory_is_short(self) -> None:
        self.sim.memory_is_short()

    @rule(gateway=GATEWAYS)
    def gateway_dies(self, gateway: str) -> None:
        self.sim.gateway_dies(gateway)

    @rule(
        model=MODELS,
        ctx=st.sampled_from([1024, 2048]),
        pin=st.sampled_from([None, None, False, True]),
        ttl=st.sampled_from([None, None, 20.0, NEVER_UNLOADED]),
    )
    def load(self, model: str, ctx: int, pin: bool | None, ttl: float | None) -> None:
        self.calls += 1
        self.sim.load(model, self.calls, options={"ctx_size": ctx}, pin=pin, ttl=ttl)

    @rule(model=MODELS)
    def plan(self, model: str) -> None:
        self.calls += 1
        self.sim.plan(model, self.calls)

    @rule(model=MODELS, pinned=st.booleans())
    def pin(self, model: str, pinned: bool) -> None:
        self.sim.pin(model, pinned)

    @rule(model=MODELS, provisional=st.booleans())
    def load_missing(self, model: str, provisional: bool) -> None:
        self.calls += 1
        self.sim.load_missing(model, self.calls, provisional=provisional)

    @precondition(lambda self: self.sim.downloads)
    @rule(data=st.data(), code=st.sampled_from([None, None, Code.DOWNLOAD_FAILED, Code.OFFLINE]))
    def end_download(self, data: st.DataObject, code: Code | None) -> None:
        self.sim.end_download(self.pick(data, sorted(self.sim.downloads)), code)

    @precondition(lambda self: self.workers(WorkerState.SPAWNED))
    @rule(data=st.data())
    def other_version(self, data: st.DataObject) -> None:
        self.sim.other_version(self.pick(data, self.workers(WorkerState.SPAWNED)), 99)

    @rule(model=MODELS)
    def unload(self, model: str) -> None:
        self.calls += 1
        self.sim.unload(model, self.calls)

    @precondition(lambda self: self.sim.calls)
    @rule(data=st.data())
    def abandon_call(self, data: st.DataObject) -> None:
        self.sim.abandon_call(self.pick(data, sorted(self.sim.calls))[1])

    @rule(seconds=st.sampled_from([0.03, 0.1, 1.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.sim.pass_time(seconds)

    def teardown(self) -> None:
        """Check that, whatever happened, every request and call is answered once nothing fails any more."""
        if not hasattr(self, "sim"):
            return
        for _ in range(400):
            if self.sim.advance():
                continue
            running = self.running()
            if self.sim.downloads:
                self.sim.end_download(min(self.sim.downloads))
            elif running:
                self.sim.finish(running[0])
            elif self.sim.live or self.sim.calls:
                self.sim.pass_time(61.0)
            else:
                break
        assert not self.sim.live, "a request waits forever"
        assert not self.sim.calls, "a load or unload is never answered"
        assert self.sim.scheduler.view.busy == 0
        self.sim.run_until_idle()
        invariants.check_policies_at_rest(self.sim.scheduler)
