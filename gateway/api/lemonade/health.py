"""``health``: the state of the server, with the documented fields and those that operators need."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.api.common.health_reports import health_report
from gateway.api.common.machine_memory import DiskEntry, MemoryEntry, disk_entries, memory_entries
from gateway.api.common.node_entries import NodeEntry, node_entries
from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.api.lemonade.model_entries import (
    FailedModelEntry,
    LoadedModelEntry,
    LoadEntry,
    RunningModelEntry,
    failed_model_entry,
    load_entry,
    loaded_model_entry,
    running_model_entry,
)
from protocol.messages.health import (
    EngineDeaths,
    HealthReport,
)
from protocol.messages.peers import Peer

_SERVING: Final = frozenset({"ready", "draining"})
_TYPES: Final = ("audio", "embedding", "image", "llm", "reranking", "tts")


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
        all_models_loaded=[loaded_model_entry(model, addresses=addresses, detail=detail) for model in loaded],
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
            models=[running_model_entry(model, detail=detail) for model in health.models],
            former_models=health.former_models,
            engine_deaths=health.deaths,
            loads=[load_entry(each) for each in health.loads],
            troubled=[failed_model_entry(model, detail=detail) for model in health.troubled],
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
