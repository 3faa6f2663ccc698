"""The life of a worker process, as one table.

Two rules.  A missing key is an error: an event that the table does not know in a state means that somebody's
picture of the world is wrong, and going on would make it worse.  And only :func:`step` changes a state.

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


class State(enum.StrEnum):
    """Where a worker process is in its life."""

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


class Step(enum.StrEnum):
    """What can happen to it."""

    HELLO = "hello"
    CHECK = "check"
    CHECKED = "checked"
    CHECK_FAILED = "check_failed"
    LET_GO = "let_go"
    LOAD = "load"
    READY = "ready"
    LOAD_FAILED = "load_failed"
    DIED = "died"
    DRAIN = "drain"
    RESUME = "resume"
    STOP = "stop"
    GONE = "gone"


TABLE: Final[dict[State, dict[Step, State]]] = {
    State.SPAWNED: {Step.HELLO: State.SPARE, Step.STOP: State.STOPPING, Step.GONE: State.GONE},
    State.SPARE: {Step.CHECK: State.CHECKING, Step.STOP: State.STOPPING, Step.GONE: State.GONE},
    State.CHECKING: {
        Step.CHECKED: State.CHECKED,
        Step.CHECK_FAILED: State.SPARE,
        Step.STOP: State.STOPPING,
        Step.GONE: State.GONE,
    },
    State.CHECKED: {
        Step.LOAD: State.LOADING,
        Step.LET_GO: State.SPARE,
        Step.STOP: State.STOPPING,
        Step.GONE: State.GONE,
    },
    State.LOADING: {
        Step.READY: State.READY,
        Step.LOAD_FAILED: State.FAILED,
        Step.STOP: State.STOPPING,
        Step.GONE: State.GONE,
    },
    State.READY: {
        Step.DRAIN: State.DRAINING,
        Step.DIED: State.FAILED,
        Step.STOP: State.STOPPING,
        Step.GONE: State.GONE,
    },
    State.DRAINING: {
        Step.RESUME: State.READY,
        Step.DIED: State.FAILED,
        Step.STOP: State.STOPPING,
        Step.GONE: State.GONE,
    },
    State.FAILED: {Step.LOAD: State.LOADING, Step.STOP: State.STOPPING, Step.GONE: State.GONE},
    State.STOPPING: {Step.GONE: State.GONE},
    State.GONE: {},
}

HOLDS_PLACE: Final = frozenset({State.LOADING, State.READY, State.DRAINING, State.FAILED, State.STOPPING})
"""States in which a worker with a model may have an engine, and so takes one of the loaded places."""

SERVES: Final = frozenset({State.READY, State.DRAINING})
"""States in which an engine answers."""


class IllegalStepError(RuntimeError):
    """The table has no such step: a bug, never weather."""


def step(state: State, event: Step) -> State:
    """Return the state after ``event``; raises :class:`IllegalStepError` if the table has no such step."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise IllegalStepError(f"{event} in state {state}") from None
