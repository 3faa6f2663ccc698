"""Random histories for the scheduler: the invariants hold whatever happens, in whatever order."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, invariant, precondition, rule

from protocol.failures import Code
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.worker_states import WorkerState
from supervisor.scheduler.memory.fitting import least_need
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import FixedPolicies
from supervisor.scheduler.queue.grants import free_weight
from supervisor.scheduler.replicas import replication
from tests.supervisor.scheduler.effect_player import NO_POLICIES
from tests.supervisor.scheduler.scheduler_machine import GATEWAYS, SchedulerMachine, model_policy
from tests.supervisor.scheduler.simulation import Simulation

GPU = "0000:c4:00.0"


class SettledMachine(SchedulerMachine):
    """Histories with many settled states, in which requests are granted and end without a reconcile."""

    @initialize(models=st.integers(1, 2), slots=st.sampled_from([4, 8]))
    def open(self, models: int, slots: int) -> None:
        super().open(models, slots, NO_POLICIES)
        self.burst("g1", 2, ended=True)

    @rule(gateway=GATEWAYS, times=st.integers(2, 10), ended=st.booleans())
    def burst(self, gateway: str, times: int, ended: bool) -> None:
        """Nearly everything has ended, then a gateway submits several requests in a row."""
        if not self.workers(WorkerState.READY):
            self.sim.submit("a")
        self.sim.run_until_idle()
        for key in self.running()[1:]:
            self.sim.finish(key)
        self.sim.run_until_idle()
        for worker in self.workers(WorkerState.READY)[:1]:
            model = self.sim.state.workers[worker].model.name
            submitted = [self.sim.submit(model, gateway) for _ in range(times)]
            for key in submitted if ended else []:
                if key in self.running():
                    self.sim.finish(key)


class MemoryMachine(SchedulerMachine):
    """Histories in which memory is scarce: engines take theirs bit by bit, and other programs hold some."""

    @initialize(
        slots=st.sampled_from([2, 4]),
        needs=st.fixed_dictionaries(
            {model: st.fixed_dictionaries({HOST: st.integers(0, 12), GPU: st.integers(0, 12)}) for model in "abc"}
        ),
        others=st.integers(0, 3),
        automatic=st.booleans(),
    )
    def open(self, slots: int, needs: dict[str, dict[str, int]], others: int, automatic: bool) -> None:
        self.sim = Simulation(3, slots, queue_requests=5, memory_reserve=1, device_memory_reserve=0)
        self.calls = 1000
        self.sim.machine = {HOST: 20_000, GPU: 10_000}
        self.sim.others = {HOST: 1000 * others, GPU: 0}
        for model, places in needs.items():
            need = {place: PlaceNeed(1000 * fixed, 1.0 if automatic else 0.0) for place, fixed in places.items()}
            self.sim.estimates[model] = MemoryEstimate(need, largest_context=4096 if automatic else 0)

    @rule(models=st.permutations("abc"))
    def check_several(self, models: list[str]) -> None:
        """Several models are requested, and all of them are checked before an engine is ready."""
        for model in models[:2]:
            self.sim.submit(model)
        for _ in range(6):
            for worker in self.workers(WorkerState.SPAWNED):
                self.sim.hello(worker)
            for worker in self.workers(WorkerState.CHECKING):
                self.sim.checked(worker)

    @precondition(lambda self: self.workers(WorkerState.LOADING))
    @rule(data=st.data(), share=st.sampled_from([0.3, 0.9]))
    def touch(self, data: st.DataObject, share: float) -> None:
        self.sim.touch(self.pick(data, self.workers(WorkerState.LOADING)), share)

    @invariant()
    def check_memory(self) -> None:
        """Engines fit together, and a model is refused only if it could not be loaded alone."""
        if not hasattr(self, "sim"):
            return
        others = self.sim.others
        for place, total in self.sim.machine.items():
            taken = sum(
                self.sim.workers[worker.id].held.get(place, 0)
                if worker.state is WorkerState.LEAVING
                else worker.need.get(place, 0)
                for worker in self.sim.state.workers.values()
                if worker.counts_as_loaded
            )
            assert taken + others[place] <= total, f"more of {place} is taken than there is"
        for failed in self.sim.scheduler.view.failed_models(self.sim.now):
            if failed.failure.code is Code.INSUFFICIENT_MEMORY:
                need = least_need(self.sim.estimates[failed.model])
                assert any(need[place] + others[place] + 1 > total for place, total in self.sim.machine.items())


class ReplicaMachine(SettledMachine):
    """Histories in which two models have several engines, of which memory or the number of loaded models may not allow all."""

    @initialize(
        models=st.integers(1, 5),
        slots=st.sampled_from([1, 2, 4]),
        replicas=st.tuples(*[st.sampled_from([(1, 1), (2, 2), (3, 3), (1, 2), (1, 3), (2, 3)])] * 2),
        pinned=st.booleans(),
    )
    def open(self, models: int, slots: int, replicas: list[tuple[int, int]], pinned: bool) -> None:
        of = {name: model_policy(each, pin=pinned) for name, each in zip("ab", replicas, strict=True)}
        SchedulerMachine.open(self, models, slots, FixedPolicies(of))
        self.sim.machine = {HOST: 5_000}
        self.sim.estimates = {name: MemoryEstimate({HOST: PlaceNeed(1_000)}) for name in "abc"}

    @rule(seconds=st.sampled_from([0.5, 6.0, 301.0]))
    def keep_waiting(self, seconds: float) -> None:
        """Time passes in small steps, as it does for a supervisor."""
        for _ in range(6):
            self.sim.pass_time(seconds / 6)

    @invariant()
    def check_replicas(self) -> None:
        if not hasattr(self, "sim"):
            return
        for model in self.sim.state.replica_sets.values():
            wanted, policy = model.scaling.wanted, model.policy
            assert policy.min_replicas <= wanted <= policy.max_replicas
            assert model.replicas[0].number == 1
            assert sum(each.worker is not None for each in model.replicas) <= policy.max_replicas
            free = [
                each for each in model.replicas if replication.takes_requests(each) and each.state is ModelState.READY
            ]
            first = model.fair_share.next(model.queue.heads(1 << 62))
            if first is not None and not self.sim.state.closing and first.request.weight <= 1:
                assert not any(free_weight(each, first) for each in free), "a request waits beside a free replica"


TestHistories = SchedulerMachine.TestCase
# As many examples as the profile says: `make soak` has ten times as many.
TestHistories.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestSettledHistories = SettledMachine.TestCase
TestMemoryHistories = MemoryMachine.TestCase
TestMemoryHistories.settings = TestHistories.settings
TestReplicaHistories = ReplicaMachine.TestCase
TestReplicaHistories.settings = TestHistories.settings
TestSettledHistories.settings = settings(TestHistories.settings, stateful_step_count=25)
