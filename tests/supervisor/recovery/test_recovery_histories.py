"""Random histories in which the supervisor dies: whatever messages were on their way, the next supervisor knows what runs and loses nothing."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule

from protocol.ids import RequestKey
from protocol.worker_states import WorkerState
from supervisor.scheduler.policy import FixedPolicies
from tests.supervisor.recovery.recovery_simulation import RecoverySimulation
from tests.supervisor.scheduler.effect_player import NO_POLICIES
from tests.supervisor.scheduler.scheduler_machine import GATEWAYS, MODELS, POLICIES, SchedulerMachine

UNHEARD = st.sampled_from(["end", "run", "granted", "ready", "engine", "worker", "gateway", "cancel", "submit"])


class RecoveryMachine(SchedulerMachine):
    sim: RecoverySimulation

    @initialize(models=st.integers(1, 3), slots=st.sampled_from([2, 4]), policies=st.just(NO_POLICIES) | POLICIES)
    def open(self, models: int, slots: int, policies: FixedPolicies) -> None:
        self.sim = RecoverySimulation(models, slots, policies=policies, queue_requests=5)
        self.calls = 1000

    @rule(effects=st.integers(0, 4))
    def supervisor_dies_within_the_next_step(self, effects: int) -> None:
        self.sim.dies_after = effects

    @rule(unheard=st.lists(UNHEARD, max_size=3), data=st.data())
    def supervisor_dies(self, unheard: list[str], data: st.DataObject) -> None:
        for what in unheard:
            getattr(self, f"_{what}_unheard")(data)
        self.sim.recover()

    @rule(policies=POLICIES)
    def configuration_is_read_again(self, policies: FixedPolicies) -> None:
        self.sim.reload(policies)

    def _end_unheard(self, data: st.DataObject) -> None:
        for key in self._one(data, self.running()):
            self.sim.ends_unheard(key, answer_read=data.draw(st.booleans()))

    def _run_unheard(self, _data: st.DataObject) -> None:
        if self.sim.order[-1:] and self.sim.order[-1] in self.running():
            self.sim.run_unread(self.sim.order.pop())

    def _granted_unheard(self, _data: st.DataObject) -> None:
        for key in self.sim.order[-2:]:
            self.sim.granted_unread(key)

    def _ready_unheard(self, data: st.DataObject) -> None:
        for worker in self._one(data, self._in_state(WorkerState.LOADING)):
            self.sim.ready_unheard(worker)

    def _engine_unheard(self, data: st.DataObject) -> None:
        for worker in self._one(data, self._in_state(WorkerState.READY)):
            self.sim.engine_dies_unheard(worker)

    def _worker_unheard(self, data: st.DataObject) -> None:
        for worker in self._one(data, list(self.sim.truth)):
            self.sim.worker_dies_unheard(worker)

    def _gateway_unheard(self, data: st.DataObject) -> None:
        self.sim.gateway_dies_unheard(data.draw(GATEWAYS))

    def _cancel_unheard(self, data: st.DataObject) -> None:
        for key in self._one(data, list(self.sim.live)):
            self.sim.cancel_unheard(key)

    def _submit_unheard(self, data: st.DataObject) -> None:
        self.sim.submit_unheard(data.draw(MODELS), data.draw(GATEWAYS))

    def _one(self, data: st.DataObject, what: list[str] | list[RequestKey]) -> list[object]:
        return [self.pick(data, what)] if what else []

    def _in_state(self, state: WorkerState) -> list[str]:
        return [worker for worker, truth in self.sim.truth.items() if truth.state is state]


TestRecoveryHistories = RecoveryMachine.TestCase
TestRecoveryHistories.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
