"""``health``: the state of the server, with the documented fields and those that operators need."""

from __future__ import annotations

from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from gateway.api.common.health_reports import health_report
from gateway.api.common.machine_memory import DiskEntry, MemoryEntry, disk_entries, memory_entries
from gateway.api.common.node_entries import NodeEntry, node_entries
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.config.resolver import is_loopback
from protocol.messages.health import (
    EngineDeaths,
    FailedModel,
    HealthReport,
    LoadInProgress,
    QueueShare,
    ReplicaReport,
    RunningModel,
)
from protocol.messages.peers import LoadStage, Peer
from protocol.models.nodes import HEAD
from protocol.times import NEVER_UNLOADED

_SERVING: Final = frozenset({"ready", "draining"})
_TYPES: Final = ("audio", "embedding", "image", "llm", "reranking", "tts")


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
    """On a server of several machines: where it is loaded, or where its files are copied to."""


class OperatorHealth(msgspec.Struct):
    """What operators need."""

    state: str
    drained: bool
    """Whether an operator has drained it: no new requests until it is undrained."""
    boot: str
    pid: int
    """Of the supervisor."""
    uptime_seconds: float
    granted: int
    queued: int
    models: list[RunningModelEntry]
    former_models: list[str]
    """Models of the former release, which finish their requests."""
    loads: list[LoadEntry]
    troubled: list[FailedModelEntry]
    engine_deaths: list[EngineDeaths]
    """Of models in any state, the one whose engine died last first."""
    problems: list[str]
    downloads: list[str]
    processes: list[Peer]
    memory: list[MemoryEntry]
    disks: list[DiskEntry]
    counters: dict[str, int]
    nodes: list[NodeEntry] | msgspec.UnsetType = msgspec.UNSET
    """The machines of the server, if it has several."""


class ServerHealth(msgspec.Struct):
    """The state of the server; `lemonbus` has what operators need."""

    status: Literal["ok", "recovering", "draining", "drained"]
    """``recovering``: the supervisor is being replaced; requests wait for it, and streams go on.

    No new requests are accepted with ``draining``, because the server ends, and with ``drained``, because an operator has
    drained it.
    """
    version: str
    websocket_port: int
    model_loaded: str | None
    checkpoint_loaded: str | None
    all_models_loaded: list[LoadedModelEntry]
    pinned_models: dict[str, int]
    max_models: dict[str, int]
    problems: list[str]
    """What keeps the server from its work, and how to fix it; empty: nothing is known."""
    lemonbus: OperatorHealth


@route("GET", "health", monitors=True)
def show_health(caller: HttpCaller, _request: Nothing) -> ServerHealth:
    """Shows the state of the server."""
    context = caller.context
    # The port of HTTP also serves the WebSockets.
    port = caller.session.settings.port or int(caller.env.get("SERVER_PORT") or 0)
    addresses = context.api_key is None or context.is_admin
    health = health_report(caller)
    return server_health(health, port, detail=context.is_admin, addresses=addresses)


def server_health(health: HealthReport, port: int, *, detail: bool, addresses: bool = True) -> ServerHealth:
    """Return the fields of all documents; our own fields are under ``lemonbus``.

    ``detail``: include the names of waiting keys and the last output of failed engines, which only administrators may
    read. ``addresses``: include those of engines, which are left empty for keys without the admin scope.
    """
    loaded = [model for model in health.models if model.state in _SERVING]
    problems = [*health.problems, *(each.text for each in health.model_problems)]
    latest = max(loaded, key=lambda model: model.last_use, default=None)
    most = {kind: health.max_models.get(kind, 0) for kind in _TYPES}
    return ServerHealth(
        status=_status(health),
        version=health.version,
        websocket_port=port,
        model_loaded=latest.spec.name if latest else None,
        checkpoint_loaded=latest.spec.checkpoint if latest else None,
        all_models_loaded=[_loaded_model(model, addresses=addresses, detail=detail) for model in loaded],
        pinned_models={kind: sum(model.pinned and model.spec.type == kind for model in loaded) for kind in _TYPES},
        max_models={**most, "transcription": most["audio"]},
        problems=problems,
        lemonbus=OperatorHealth(
            state=health.status,
            drained=health.drained,
            boot=health.boot,
            pid=health.pid,
            uptime_seconds=round(health.uptime, 3),
            granted=health.granted,
            queued=health.queued,
            models=[_running_model(model, detail=detail) for model in health.models],
            former_models=health.former_models,
            engine_deaths=health.deaths,
            loads=[_load(each) for each in health.loads],
            troubled=[_failed_model(model, detail=detail) for model in health.troubled],
            problems=problems,
            downloads=health.downloads,
            processes=health.peers,
            memory=memory_entries(health.memory, detail=detail),
            disks=disk_entries(health.disks),
            counters=health.counters,
            nodes=node_entries(health.nodes, detail=detail) if health.nodes else msgspec.UNSET,
        ),
    )


def _status(health: HealthReport) -> Literal["ok", "recovering", "draining", "drained"]:
    match health.status:
        case "draining" | "drained" | "recovering" as status:
            return status
        case _:
            return "ok"


def _loaded_model(model: RunningModel, *, addresses: bool, detail: bool) -> LoadedModelEntry:
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


def _running_model(model: RunningModel, *, detail: bool) -> RunningModelEntry:
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


def _load(load: LoadInProgress) -> LoadEntry:
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


def _failed_model(model: FailedModel, *, detail: bool) -> FailedModelEntry:
    failure = model.failure
    return FailedModelEntry(
        model_name=model.model,
        code=failure.code.value,
        reason=failure.message,
        detail=failure.detail if detail else "",
        failures=model.failures,
        retry_in_seconds=round(model.retry_in, 3),
    )
