"""The table of a worker's life."""

from __future__ import annotations

import pytest

from supervisor.scheduler.worker_states import TRANSITIONS, IllegalTransitionError, WorkerEvent, WorkerState, next_state


def test_every_state_is_in_the_table_and_every_living_one_can_end() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    for state in WorkerState:
        if state is not WorkerState.GONE:
            assert next_state(state, WorkerEvent.GONE) is WorkerState.GONE


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
