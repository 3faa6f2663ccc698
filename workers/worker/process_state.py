"""The states of a worker and the events that change them: one table. Pure.

Invariant: an event that the table does not have for a state changes nothing. The caller decides whether that is an
error (a second `StartEngine`) or expected (a readiness report overtaken by a shutdown).
"""

from __future__ import annotations

import enum
from typing import Final


class WorkerProcessState(enum.Enum):
    """What a worker is doing."""

    SPARE = enum.auto()
    """No engine; models can be checked."""
    LOADING = enum.auto()
    """An engine was started and is not ready."""
    READY = enum.auto()
    ENGINE_LOST = enum.auto()
    """The engine of a ready model died; `StartEngine` or `Shutdown` follows."""
    LEAVING = enum.auto()
    """Running requests may end, then this process ends."""


class WorkerProcessEvent(enum.Enum):
    """What changes a worker's state."""

    ENGINE_STARTED = enum.auto()
    ENGINE_READY = enum.auto()
    ENGINE_EXITED = enum.auto()
    SHUTDOWN = enum.auto()
    """The supervisor or an administrator ends the worker, or the server has died."""


_State, _Event = WorkerProcessState, WorkerProcessEvent

TRANSITIONS: Final[dict[tuple[WorkerProcessState, WorkerProcessEvent], WorkerProcessState]] = {
    (_State.SPARE, _Event.ENGINE_STARTED): _State.LOADING,
    (_State.ENGINE_LOST, _Event.ENGINE_STARTED): _State.LOADING,
    (_State.LOADING, _Event.ENGINE_READY): _State.READY,
    (_State.LOADING, _Event.ENGINE_EXITED): _State.SPARE,
    (_State.READY, _Event.ENGINE_EXITED): _State.ENGINE_LOST,
    (_State.LEAVING, _Event.ENGINE_EXITED): _State.LEAVING,
    **{(state, _Event.SHUTDOWN): _State.LEAVING for state in WorkerProcessState},
}


def next_state(state: WorkerProcessState, event: WorkerProcessEvent) -> WorkerProcessState | None:
    """Return the state after an event; None if the event does not fit the state."""
    return TRANSITIONS.get((state, event))
