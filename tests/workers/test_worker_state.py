"""The table of a worker's states."""

from __future__ import annotations

import pytest

from workers.worker.attempt import _NEXT_PHASES, AttemptPhase
from workers.worker.worker_state import TRANSITIONS, WorkerEvent, WorkerState, next_state

STARTED, READY, EXITED, SHUTDOWN = (
    WorkerEvent.ENGINE_STARTED,
    WorkerEvent.ENGINE_READY,
    WorkerEvent.ENGINE_EXITED,
    WorkerEvent.SHUTDOWN,
)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], WorkerState.SPARE),
        ([STARTED, READY], WorkerState.READY),
        ([STARTED, EXITED], WorkerState.SPARE),
        ([STARTED, EXITED, STARTED, READY], WorkerState.READY),
        ([STARTED, READY, EXITED], WorkerState.ENGINE_LOST),
        ([STARTED, READY, EXITED, STARTED], WorkerState.LOADING),
        ([STARTED, SHUTDOWN, EXITED], WorkerState.LEAVING),
        ([SHUTDOWN, SHUTDOWN], WorkerState.LEAVING),
    ],
)
def test_lives(events: list[WorkerEvent], state: WorkerState) -> None:
    reached: WorkerState | None = WorkerState.SPARE
    for event in events:
        assert reached is not None
        reached = next_state(reached, event)
    assert reached is state


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (WorkerState.LOADING, STARTED),
        (WorkerState.READY, STARTED),
        (WorkerState.LEAVING, STARTED),
        (WorkerState.LEAVING, READY),
        (WorkerState.SPARE, READY),
        (WorkerState.SPARE, EXITED),
    ],
)
def test_an_event_that_does_not_fit_changes_nothing(state: WorkerState, event: WorkerEvent) -> None:
    assert next_state(state, event) is None


def test_a_leaving_worker_stays_so() -> None:
    assert {TRANSITIONS.get((WorkerState.LEAVING, event)) for event in WorkerEvent} <= {None, WorkerState.LEAVING}


def test_an_ended_attempt_stays_so() -> None:
    assert _NEXT_PHASES[AttemptPhase.ENDED] == frozenset()
    assert set(_NEXT_PHASES) == set(AttemptPhase)
