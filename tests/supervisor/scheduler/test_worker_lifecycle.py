"""The table of a worker's life."""

from __future__ import annotations

import pytest
from msgspec import structs

from protocol.messages.peers import EngineReady
from supervisor.scheduler.effects import KillAfter
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.scheduled_model import ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_states import TRANSITIONS, IllegalTransitionError, WorkerEvent, WorkerState, next_state


def test_every_state_is_in_the_table_and_every_living_one_can_end() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    for state in WorkerState:
        if state is not WorkerState.GONE:
            assert next_state(state, WorkerEvent.GONE) is WorkerState.GONE


READY = EngineReady(4, 4096, 1, "", 1.0)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (WorkerState.READY, WorkerEvent.HELLO),
        (WorkerState.GONE, WorkerEvent.GONE),
        (WorkerState.SPARE, WorkerEvent.READY),
    ],
)
def test_a_step_the_table_does_not_know_is_an_error(state: WorkerState, event: WorkerEvent) -> None:
    with pytest.raises(IllegalTransitionError):
        next_state(state, event)


@pytest.mark.parametrize(
    ("facts", "seconds"), [(None, 5.0), (READY, 5.0), (structs.replace(READY, leave_seconds=6.0), 11.0)]
)
def test_a_worker_that_keeps_prompt_caches_is_killed_that_much_later(facts: EngineReady | None, seconds: float) -> None:
    state = SchedulerState(SchedulerLimits(), lambda: "w1")
    process = ScheduledWorker("w1", 0.0)
    process.facts = facts
    state.stop_worker(process)
    assert state.effects()[1] == KillAfter("w1", seconds)
