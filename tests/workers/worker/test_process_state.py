"""The table of a worker's states."""

from __future__ import annotations

import pytest

from workers.requests.attempt_phase import NEXT_PHASES, AttemptPhase
from workers.worker.process_state import TRANSITIONS, WorkerProcessEvent, WorkerProcessState, next_state

STARTED, READY, EXITED, SHUTDOWN = (
    WorkerProcessEvent.ENGINE_STARTED,
    WorkerProcessEvent.ENGINE_READY,
    WorkerProcessEvent.ENGINE_EXITED,
    WorkerProcessEvent.SHUTDOWN,
)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], WorkerProcessState.SPARE),
        ([STARTED, READY], WorkerProcessState.READY),
        ([STARTED, EXITED], WorkerProcessState.SPARE),
        ([STARTED, EXITED, STARTED, READY], WorkerProcessState.READY),
        ([STARTED, READY, EXITED], WorkerProcessState.ENGINE_LOST),
        ([STARTED, READY, EXITED, STARTED], WorkerProcessState.LOADING),
        ([STARTED, SHUTDOWN, EXITED], WorkerProcessState.LEAVING),
        ([SHUTDOWN, SHUTDOWN], WorkerProcessState.LEAVING),
    ],
)
def test_lives(events: list[WorkerProcessEvent], state: WorkerProcessState) -> None:
    reached: WorkerProcessState | None = WorkerProcessState.SPARE
    for event in events:
        assert reached is not None
        reached = next_state(reached, event)
    assert reached is state


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (WorkerProcessState.LOADING, STARTED),
        (WorkerProcessState.READY, STARTED),
        (WorkerProcessState.LEAVING, STARTED),
        (WorkerProcessState.LEAVING, READY),
        (WorkerProcessState.SPARE, READY),
        (WorkerProcessState.SPARE, EXITED),
    ],
)
def test_an_event_that_does_not_fit_changes_nothing(state: WorkerProcessState, event: WorkerProcessEvent) -> None:
    assert next_state(state, event) is None


def test_a_leaving_worker_stays_so() -> None:
    assert {TRANSITIONS.get((WorkerProcessState.LEAVING, event)) for event in WorkerProcessEvent} <= {
        None,
        WorkerProcessState.LEAVING,
    }


def test_an_ended_attempt_stays_so() -> None:
    assert NEXT_PHASES[AttemptPhase.ENDED] == frozenset()
    assert set(NEXT_PHASES) == set(AttemptPhase)
