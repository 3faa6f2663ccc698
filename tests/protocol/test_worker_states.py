"""The table of a worker's lifecycle, and the part of it that the worker itself follows and reports."""

from __future__ import annotations

import msgspec
import pytest

from protocol.messages.recovery import WorkerSnapshot
from protocol.state_table import IllegalTransitionError, next_state
from protocol.worker_states import KNOWN_TO_WORKER, OWN_TRANSITIONS, TRANSITIONS, WorkerEvent, WorkerState

LOAD, READY, LOAD_FAILED, DIED, STOP = (
    WorkerEvent.LOAD,
    WorkerEvent.READY,
    WorkerEvent.LOAD_FAILED,
    WorkerEvent.DIED,
    WorkerEvent.STOP,
)


def test_every_state_and_event_is_in_the_table_and_every_living_worker_can_end() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    assert {event for steps in TRANSITIONS.values() for event in steps} == set(WorkerEvent)
    for state in set(WorkerState) - {WorkerState.GONE}:
        assert next_state(TRANSITIONS, state, WorkerEvent.GONE) is WorkerState.GONE


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (WorkerState.READY, WorkerEvent.HELLO),
        (WorkerState.GONE, WorkerEvent.GONE),
        (WorkerState.SPARE, WorkerEvent.READY),
        (WorkerState.LEAVING, WorkerEvent.STOP),
    ],
)
def test_a_step_the_table_does_not_know_is_an_error(state: WorkerState, event: WorkerEvent) -> None:
    with pytest.raises(IllegalTransitionError):
        next_state(TRANSITIONS, state, event)


def test_the_workers_own_table_has_the_steps_of_the_whole_table_that_it_notices_and_no_others() -> None:
    noticed: dict[WorkerState, dict[WorkerEvent, WorkerState]] = {state: {} for state in KNOWN_TO_WORKER.values()}
    for state, steps in TRANSITIONS.items():
        for event, after in steps.items():
            if after is not WorkerState.GONE and KNOWN_TO_WORKER[after] is not KNOWN_TO_WORKER[state]:
                known = noticed[KNOWN_TO_WORKER[state]].setdefault(event, KNOWN_TO_WORKER[after])
                assert known is KNOWN_TO_WORKER[after], "the worker could not tell which step it is"
    assert noticed == OWN_TRANSITIONS


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], WorkerState.SPARE),
        ([LOAD, READY], WorkerState.READY),
        ([LOAD, LOAD_FAILED], WorkerState.SPARE),
        ([LOAD, LOAD_FAILED, LOAD, READY], WorkerState.READY),
        ([LOAD, READY, DIED], WorkerState.ENGINE_LOST),
        ([LOAD, READY, DIED, LOAD], WorkerState.LOADING),
        ([LOAD, STOP], WorkerState.LEAVING),
    ],
)
def test_what_a_worker_sees_of_its_life(events: list[WorkerEvent], state: WorkerState) -> None:
    reached = WorkerState.SPARE
    for event in events:
        reached = next_state(OWN_TRANSITIONS, reached, event)
    assert reached is state


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (WorkerState.LOADING, LOAD),
        (WorkerState.READY, LOAD),
        (WorkerState.LEAVING, LOAD),
        (WorkerState.LEAVING, READY),
        (WorkerState.SPARE, READY),
        (WorkerState.SPARE, DIED),
    ],
)
def test_a_step_that_a_worker_cannot_make_is_an_error(state: WorkerState, event: WorkerEvent) -> None:
    with pytest.raises(IllegalTransitionError):
        next_state(OWN_TRANSITIONS, state, event)


def test_a_snapshot_has_the_state_in_the_words_of_version_7() -> None:
    states = [msgspec.to_builtins(WorkerSnapshot(state)).get("phase") for state in OWN_TRANSITIONS]
    assert states == [None, "loading", "ready", "engine_lost", "leaving"], "a spare is the default"
