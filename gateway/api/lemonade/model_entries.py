"""The models in ``health``: those that are loaded, those that have a worker, those that are being loaded, those that failed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from protocol.config.resolver import is_loopback
from protocol.messages.engines import LoadStage
from protocol.messages.health import (
    FailedModel,
    LoadInProgress,
    QueueShare,
    ReplicaReport,
    RunningModel,
)
from protocol.models.nodes import HEAD
from protocol.times import NEVER_UNLOADED


class LoadedModelEntry(msgspec.Struct):
    """A loaded model. Times in Unix seconds."""

    model_name: str
    checkpoint: str
    last_use: float
    type: str
    device: str
    recipe: str
    recipe_options: dict[str, Any]
    pid: int
    """The process of its engine."""
    is_busy: bool
    """Whether requests run or wait, or it is about to be stopped."""
    pinned: bool
    ttl: float | None
    """Idle seconds after which it is unloaded; 0: as soon as it is idle; null: never."""
    expires_at: float | None
    """When it is unloaded if nothing uses it until then."""
    backend_url: str
    """Where its engine listens. Empty for other callers than administrators, and if only another machine reaches it."""
    launch_command: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Its engine's command line, for administrators."""
    node: str | msgspec.UnsetType = msgspec.UNSET
    """Where it runs, if the server has several machines."""


class WorkProgress(msgspec.Struct):
    """The progress of a request."""

    request_id: str
    done: int
    total: int
    unit: str


class RunningModelEntry(msgspec.Struct):
    """A model that has a worker, in any state."""

    model_name: str
    state: str
    pinned: bool
    slots: int
    """Slots that requests may hold at once."""
    context: int
    granted: int
    queued: int
    queue: list[QueueShare]
    """For administrators: whose requests wait."""
    load_seconds: float
    restored_tokens: int
    progress: list[WorkProgress]
    worker: str
    worker_pid: int
    engine_pid: int
    node: str | msgspec.UnsetType = msgspec.UNSET
    """Where it runs, if the server has several machines. Its pids are those of that machine."""
    replicas: list[ReplicaReport] | msgspec.UnsetType = msgspec.UNSET
    """Its engines, if it may have several. The other fields have the sums, and the facts of one engine."""


class FailedModelEntry(msgspec.Struct):
    """A model whose last load or check failed."""

    model_name: str
    code: str
    reason: str
    detail: str
    """For administrators: the last output of its engine."""
    failures: int
    """How many in a row."""
    retry_in_seconds: float


class LoadEntry(msgspec.Struct):
    """A load that has begun and not ended."""

    model_name: str
    stage: LoadStage
    age_seconds: float
    waiting: int
    """Requests and loads that wait for it."""
    done: int
    total: int
    """0: the engine does not say how far it is."""
    unit: str
    replica: int | msgspec.UnsetType = msgspec.UNSET
    """The number of the engine, if it is not the first one of its model."""
    node: str | msgspec.UnsetType = msgspec.UNSET
    """On a server of several machines: where it is loaded, where its files are copied to, or the lost one that it waits for."""


def loaded_model_entry(model: RunningModel, *, addresses: bool, detail: bool) -> LoadedModelEntry:
    """Return a loaded model. ``detail``: with its engine's command line, which contains paths of this machine."""
    spec = model.spec
    url = model.backend_url.rstrip("/") if addresses and not _is_loopback_elsewhere(model) else ""
    return LoadedModelEntry(
        model_name=spec.name,
        checkpoint=spec.checkpoint,
        last_use=model.last_use,
        type=spec.type,
        device=spec.device,
        recipe=spec.recipe,
        recipe_options=spec.options,
        pid=model.engine_pid,
        launch_command=model.command if detail else msgspec.UNSET,
        is_busy=model.is_busy,
        pinned=model.pinned,
        ttl=None if model.ttl == NEVER_UNLOADED else model.ttl,
        expires_at=model.expires_at or None,
        backend_url=url if not url or url.endswith("/v1") else f"{url}/v1",
        node=model.node or msgspec.UNSET,
    )


def _is_loopback_elsewhere(model: RunningModel) -> bool:
    """Return whether the address of an engine means another machine than the one that reads it."""
    return model.node not in ("", HEAD) and is_loopback(urlsplit(model.backend_url).hostname or "")


def running_model_entry(model: RunningModel, *, detail: bool) -> RunningModelEntry:
    """Return a model that has a worker. ``detail``: with the names of the keys whose requests wait."""
    return RunningModelEntry(
        model_name=model.spec.name,
        state=model.state,
        pinned=model.pinned,
        slots=model.slots,
        context=model.context,
        granted=model.granted,
        queued=model.queued,
        queue=model.queue if detail else [],
        load_seconds=round(model.load_seconds, 3),
        restored_tokens=model.restored_tokens,
        progress=[WorkProgress(each.label, each.done, each.total, each.unit) for each in model.progress],
        worker=model.worker,
        worker_pid=model.worker_pid,
        engine_pid=model.engine_pid,
        node=model.node or msgspec.UNSET,
        replicas=model.replicas or msgspec.UNSET,
    )


def load_entry(load: LoadInProgress) -> LoadEntry:
    """Return a load that has begun and not ended."""
    return LoadEntry(
        model_name=load.model,
        stage=load.stage,
        age_seconds=load.age,
        waiting=load.waiting,
        done=load.done,
        total=load.total,
        unit=load.unit,
        replica=load.replica or msgspec.UNSET,
        node=load.node or msgspec.UNSET,
    )


def failed_model_entry(model: FailedModel, *, detail: bool) -> FailedModelEntry:
    """Return a model whose last load or check failed. ``detail``: with the last output of its engine."""
    failure = model.failure
    return FailedModelEntry(
        model_name=model.model,
        code=failure.code.value,
        reason=failure.message,
        detail=failure.detail if detail else "",
        failures=model.failures,
        retry_in_seconds=round(model.retry_in, 3),
    )
