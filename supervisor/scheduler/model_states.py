"""The life of a model, as one table: from not loaded to ready and back.

Only :mod:`supervisor.scheduler.model_changes` changes a model's state, its specs and whether it is kept loaded.

ABSENT, DOWNLOADING, BACKING_OFF and QUEUED have no worker. All other states have one; the worker's own table is in
:mod:`protocol.worker_states`. `docs/lifecycles.md` shows both.
"""

from __future__ import annotations

import enum
from typing import Final

from protocol.worker_states import WorkerState


class ModelState(enum.StrEnum):
    """The state of a model in its life."""

    ABSENT = "absent"
    """It is not loaded, and nothing asks for it."""
    DOWNLOADING = "downloading"
    QUEUED = "queued"
    """It is to be loaded, but has no worker yet."""
    CHECKING = "checking"
    """A worker finds out what can be known without an engine."""
    CHECKED = "checked"
    """It waits until other models have been unloaded for it."""
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """It still serves, but is about to stop: it is evicted, or an unload or other options were requested."""
    RESTARTING = "restarting"
    """Its engine died, and its worker is about to start another one."""
    RELOADING = "reloading"
    """Its worker is stopping, and the model is loaded again afterwards: with other options, or because its engine hung."""
    UNLOADING = "unloading"
    """Its worker is stopping."""
    BACKING_OFF = "backing_off"
    """Its last load has just failed; it is not tried again yet."""


class ModelEvent(enum.StrEnum):
    """What can happen to a model."""

    FETCH = "fetch"
    DOWNLOAD_ENDED = "download_ended"
    QUEUE = "queue"
    ABANDON = "abandon"
    BACK_OFF = "back_off"
    PAUSE_OVER = "pause_over"
    CHECK = "check"
    CHECKED = "checked"
    RELEASE = "release"
    LOAD = "load"
    READY = "ready"
    LOAD_FAILED = "load_failed"
    ENGINE_DIED = "engine_died"
    DRAIN = "drain"
    RESUME = "resume"
    RELOAD = "reload"
    UNLOAD = "unload"
    WORKER_GONE = "worker_gone"


_STATE, _EVENT = ModelState, ModelEvent

TRANSITIONS: Final[dict[ModelState, dict[ModelEvent, ModelState]]] = {
    _STATE.ABSENT: {
        _EVENT.FETCH: _STATE.DOWNLOADING,
        _EVENT.QUEUE: _STATE.QUEUED,
        _EVENT.BACK_OFF: _STATE.BACKING_OFF,
    },
    _STATE.DOWNLOADING: {_EVENT.DOWNLOAD_ENDED: _STATE.ABSENT},
    _STATE.BACKING_OFF: {_EVENT.PAUSE_OVER: _STATE.ABSENT},
    _STATE.QUEUED: {_EVENT.CHECK: _STATE.CHECKING, _EVENT.ABANDON: _STATE.ABSENT},
    _STATE.CHECKING: {
        _EVENT.CHECKED: _STATE.CHECKED,
        _EVENT.LOAD_FAILED: _STATE.ABSENT,
        _EVENT.RELEASE: _STATE.ABSENT,
        _EVENT.WORKER_GONE: _STATE.ABSENT,
    },
    _STATE.CHECKED: {
        _EVENT.LOAD: _STATE.LOADING,
        _EVENT.RELEASE: _STATE.ABSENT,
        _EVENT.WORKER_GONE: _STATE.ABSENT,
    },
    _STATE.LOADING: {
        _EVENT.READY: _STATE.READY,
        _EVENT.LOAD_FAILED: _STATE.ABSENT,
        _EVENT.UNLOAD: _STATE.UNLOADING,
        _EVENT.WORKER_GONE: _STATE.ABSENT,
    },
    _STATE.READY: {
        _EVENT.DRAIN: _STATE.DRAINING,
        _EVENT.ENGINE_DIED: _STATE.RESTARTING,
        _EVENT.UNLOAD: _STATE.UNLOADING,
        _EVENT.WORKER_GONE: _STATE.ABSENT,
    },
    _STATE.DRAINING: {
        _EVENT.RESUME: _STATE.READY,
        _EVENT.ENGINE_DIED: _STATE.RESTARTING,
        _EVENT.RELOAD: _STATE.RELOADING,
        _EVENT.UNLOAD: _STATE.UNLOADING,
        _EVENT.WORKER_GONE: _STATE.ABSENT,
    },
    _STATE.RESTARTING: {
        _EVENT.LOAD: _STATE.LOADING,
        _EVENT.RELOAD: _STATE.RELOADING,
        _EVENT.UNLOAD: _STATE.UNLOADING,
        _EVENT.WORKER_GONE: _STATE.ABSENT,
    },
    _STATE.RELOADING: {_EVENT.UNLOAD: _STATE.UNLOADING, _EVENT.WORKER_GONE: _STATE.QUEUED},
    _STATE.UNLOADING: {_EVENT.WORKER_GONE: _STATE.ABSENT},
}

WORKER_STATES: Final[dict[ModelState, WorkerState]] = {
    _STATE.CHECKING: WorkerState.CHECKING,
    _STATE.CHECKED: WorkerState.CHECKED,
    _STATE.LOADING: WorkerState.LOADING,
    _STATE.READY: WorkerState.READY,
    _STATE.DRAINING: WorkerState.DRAINING,
    _STATE.RESTARTING: WorkerState.ENGINE_LOST,
    _STATE.RELOADING: WorkerState.LEAVING,
    _STATE.UNLOADING: WorkerState.LEAVING,
}
"""The state of a model's worker. In states that are missing here, a model has none."""

TO_BE_LOADED: Final = frozenset({_STATE.QUEUED, _STATE.CHECKING, _STATE.CHECKED})
"""States of a model that has no engine yet, and is to get one."""
