"""The life of a worker process, as one table.

There are two rules. A missing key is an error: an event that the table does not have in a state is a bug, and going on
would make it worse. And only :meth:`ScheduledWorker.transition` changes a state, called from
:mod:`supervisor.scheduler.model_changes` if the worker has a model.

::

    SPAWNED ──hello──▶ SPARE ──check──▶ CHECKING ──checked──▶ CHECKED ──load──▶ LOADING ──ready──▶ READY
                         ▲                 │ check_failed        │ let_go           │ load_failed   │ ▲
                         └─────────────────┴─────────────────────┘                  ▼               │ │ resume
                                                                                  FAILED ◀──died── READY/DRAINING
    any living state ──stop──▶ STOPPING ──gone──▶ GONE          FAILED ──load──▶ LOADING (a restart)
"""

from __future__ import annotations

import enum
from typing import Final


class WorkerState(enum.StrEnum):
    """The state of a worker process in its life."""

    SPAWNED = "spawned"
    SPARE = "spare"
    CHECKING = "checking"
    CHECKED = "checked"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    STOPPING = "stopping"
    GONE = "gone"


class WorkerEvent(enum.StrEnum):
    """What can happen to a worker."""

    HELLO = "hello"
    CHECK = "check"
    CHECKED = "checked"
    CHECK_FAILED = "check_failed"
    RELEASE = "release"
    LOAD = "load"
    READY = "ready"
    LOAD_FAILED = "load_failed"
    DIED = "died"
    DRAIN = "drain"
    RESUME = "resume"
    STOP = "stop"
    GONE = "gone"


TRANSITIONS: Final[dict[WorkerState, dict[WorkerEvent, WorkerState]]] = {
    WorkerState.SPAWNED: {
        WorkerEvent.HELLO: WorkerState.SPARE,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.SPARE: {
        WorkerEvent.CHECK: WorkerState.CHECKING,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.CHECKING: {
        WorkerEvent.CHECKED: WorkerState.CHECKED,
        WorkerEvent.CHECK_FAILED: WorkerState.SPARE,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.CHECKED: {
        WorkerEvent.LOAD: WorkerState.LOADING,
        WorkerEvent.RELEASE: WorkerState.SPARE,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.LOADING: {
        WorkerEvent.READY: WorkerState.READY,
        WorkerEvent.LOAD_FAILED: WorkerState.FAILED,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.READY: {
        WorkerEvent.DRAIN: WorkerState.DRAINING,
        WorkerEvent.DIED: WorkerState.FAILED,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.DRAINING: {
        WorkerEvent.RESUME: WorkerState.READY,
        WorkerEvent.DIED: WorkerState.FAILED,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.FAILED: {
        WorkerEvent.LOAD: WorkerState.LOADING,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.GONE: WorkerState.GONE,
    },
    WorkerState.STOPPING: {WorkerEvent.GONE: WorkerState.GONE},
    WorkerState.GONE: {},
}

COUNTS_AS_LOADED: Final = frozenset(
    {WorkerState.LOADING, WorkerState.READY, WorkerState.DRAINING, WorkerState.FAILED, WorkerState.STOPPING}
)
"""States in which a worker with a model may have an engine, and so counts towards the models that may be loaded."""

SERVING: Final = frozenset({WorkerState.READY, WorkerState.DRAINING})
"""States in which an engine answers."""


class IllegalTransitionError(RuntimeError):
    """The table has no such step: a bug."""


def next_state(state: WorkerState, event: WorkerEvent) -> WorkerState:
    """Return the state after ``event``; raises :class:`IllegalTransitionError` if the table has no such step."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransitionError(f"{event} in state {state}") from None
