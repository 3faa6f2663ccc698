"""The life of a worker process, as one table, and what the worker itself knows of it.

The supervisor follows the whole table (``ScheduledWorker.state``). It knows what it has ordered: no message tells a
worker that it drains, or that its check is still wanted. Only the worker knows what its engine does. So the worker
follows the same table with fewer states (:data:`KNOWN_TO_WORKER`), and its ``Hello`` says one of those to a new
supervisor. `docs/lifecycles.md` shows both.
"""

from __future__ import annotations

import enum
from typing import Final


class WorkerState(enum.StrEnum):
    """The state of a worker process in its life."""

    SPAWNED = "spawned"
    """It was started, and has not said ``Hello`` yet."""
    SPARE = "spare"
    """It has no engine, and can check a model."""
    CHECKING = "checking"
    """It finds out what can be known of a model without an engine."""
    CHECKED = "checked"
    """Its model waits until others have been unloaded for it."""
    LOADING = "loading"
    """Its engine was started and is not ready."""
    READY = "ready"
    DRAINING = "draining"
    """Its engine still answers, but gets no more requests because it is about to stop."""
    ENGINE_LOST = "engine_lost"
    """The engine of a ready model died; another one is started, or the worker ends."""
    LEAVING = "leaving"
    """It was told to end, and will when its attempts have ended."""
    GONE = "gone"
    """The process has ended."""


class WorkerEvent(enum.StrEnum):
    """What can happen to a worker. In parentheses: the message that says it."""

    HELLO = "hello"
    """(``Hello``)"""
    CHECK = "check"
    """(``CheckModel``)"""
    CHECKED = "checked"
    """(``ModelChecked``)"""
    CHECK_FAILED = "check_failed"
    """(``LoadFailed`` without ``started``)"""
    RELEASE = "release"
    """Its model is no longer wanted (no message)."""
    LOAD = "load"
    """(``StartEngine``)"""
    READY = "ready"
    """(``EngineReady``)"""
    LOAD_FAILED = "load_failed"
    """(``LoadFailed`` with ``started``)"""
    DIED = "died"
    """(``EngineDied``)"""
    DRAIN = "drain"
    """(no message)"""
    RESUME = "resume"
    """It is not to stop after all (no message)."""
    STOP = "stop"
    """(``Shutdown``)"""
    GONE = "gone"
    """The process has ended (no message)."""


_STATE, _EVENT = WorkerState, WorkerEvent
_END: Final = {_EVENT.STOP: _STATE.LEAVING, _EVENT.GONE: _STATE.GONE}

TRANSITIONS: Final[dict[WorkerState, dict[WorkerEvent, WorkerState]]] = {
    _STATE.SPAWNED: {_EVENT.HELLO: _STATE.SPARE, **_END},
    _STATE.SPARE: {_EVENT.CHECK: _STATE.CHECKING, **_END},
    _STATE.CHECKING: {_EVENT.CHECKED: _STATE.CHECKED, _EVENT.CHECK_FAILED: _STATE.SPARE, **_END},
    _STATE.CHECKED: {_EVENT.LOAD: _STATE.LOADING, _EVENT.RELEASE: _STATE.SPARE, **_END},
    _STATE.LOADING: {_EVENT.READY: _STATE.READY, _EVENT.LOAD_FAILED: _STATE.SPARE, **_END},
    _STATE.READY: {_EVENT.DRAIN: _STATE.DRAINING, _EVENT.DIED: _STATE.ENGINE_LOST, **_END},
    _STATE.DRAINING: {_EVENT.RESUME: _STATE.READY, _EVENT.DIED: _STATE.ENGINE_LOST, **_END},
    _STATE.ENGINE_LOST: {_EVENT.LOAD: _STATE.LOADING, **_END},
    _STATE.LEAVING: {_EVENT.GONE: _STATE.GONE},
    _STATE.GONE: {},
}

KNOWN_TO_WORKER: Final[dict[WorkerState, WorkerState]] = {
    _STATE.SPAWNED: _STATE.SPARE,
    _STATE.SPARE: _STATE.SPARE,
    _STATE.CHECKING: _STATE.SPARE,
    _STATE.CHECKED: _STATE.SPARE,
    _STATE.LOADING: _STATE.LOADING,
    _STATE.READY: _STATE.READY,
    _STATE.DRAINING: _STATE.READY,
    _STATE.ENGINE_LOST: _STATE.ENGINE_LOST,
    _STATE.LEAVING: _STATE.LEAVING,
}
"""State → how the worker itself sees it. A worker that has ended sees nothing."""

OWN_TRANSITIONS: Final[dict[WorkerState, dict[WorkerEvent, WorkerState]]] = {
    _STATE.SPARE: {_EVENT.LOAD: _STATE.LOADING, _EVENT.STOP: _STATE.LEAVING},
    _STATE.LOADING: {
        _EVENT.READY: _STATE.READY,
        _EVENT.LOAD_FAILED: _STATE.SPARE,
        _EVENT.STOP: _STATE.LEAVING,
    },
    _STATE.READY: {_EVENT.DIED: _STATE.ENGINE_LOST, _EVENT.STOP: _STATE.LEAVING},
    _STATE.ENGINE_LOST: {_EVENT.LOAD: _STATE.LOADING, _EVENT.STOP: _STATE.LEAVING},
    _STATE.LEAVING: {},
}
"""The table as the worker itself follows it: the events that change what it knows. A test derives it from
:data:`TRANSITIONS` and compares."""
