"""Random histories for the scheduler: the invariants hold whatever happens, in whatever order."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule

from protocol.worker_states import WorkerState
from tests.supervisor.scheduler.effect_player import NO_POLICIES
from tests.supervisor.scheduler.scheduler_machine import GATEWAYS, SchedulerMachine


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


TestHistories = SchedulerMachine.TestCase
# As many examples as the profile says: `make soak` has ten times as many.
TestHistories.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestSettledHistories = SettledMachine.TestCase
TestSettledHistories.settings = settings(TestHistories.settings, stateful_step_count=25)
