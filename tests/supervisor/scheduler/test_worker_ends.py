"""The time after which a worker that was told to end is killed."""

from __future__ import annotations

import pytest
from msgspec import structs

from protocol.messages.engines import EngineReady
from supervisor.scheduler.effects import KillAfter
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState

READY = EngineReady(4, 4096, 1, "", 1.0)


@pytest.mark.parametrize(
    ("facts", "seconds"), [(None, 5.0), (READY, 5.0), (structs.replace(READY, leave_seconds=6.0), 11.0)]
)
def test_a_worker_that_keeps_prompt_caches_is_killed_that_much_later(facts: EngineReady | None, seconds: float) -> None:
    state = SchedulerState(SchedulerLimits(), lambda: "w1")
    worker = ScheduledWorker("w1", 0.0)
    worker.facts = facts
    state.stop_worker(worker)
    assert state.effects()[1] == KillAfter("w1", seconds)
