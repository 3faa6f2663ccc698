"""``health`` and ``stats``: the state of the server, with the documented fields and those that operators need."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gateway.api.common.health_reports import RECOVERING, health_report
from gateway.api.common.operations import MODEL
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.health import FailedModel, GetStats, HealthReport, QueueShare, RunningModel, StatsReport
from protocol.messages.peers import Peer
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
    launch_command: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Its engine's command line, for administrators."""


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


class OperatorHealth(msgspec.Struct):
    """What operators need."""

    state: str
    boot: str
    pid: int
    """Of the supervisor."""
    uptime_seconds: float
    granted: int
    queued: int
    models: list[RunningModelEntry]
    former_models: list[str]
    """Models of the former release, which finish their requests."""
    troubled: list[FailedModelEntry]
    problems: list[str]
    downloads: list[str]
    processes: list[Peer]
    counters: dict[str, int]


class ServerHealth(msgspec.Struct):
    """The state of the server; `lemonbus` has what operators need."""

    status: Literal["ok", "recovering"]
    """``recovering``: the supervisor is being replaced; requests wait for it, and streams go on."""
    version: str
    websocket_port: int
    model_loaded: str | None
    checkpoint_loaded: str | None
    all_models_loaded: list[LoadedModelEntry]
    pinned_models: dict[str, int]
    max_models: dict[str, int]
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
    latest = max(loaded, key=lambda model: model.last_use, default=None)
    most = {kind: health.max_models.get(kind, 0) for kind in _TYPES}
    return ServerHealth(
        status="recovering" if health.status == RECOVERING else "ok",
        version=health.version,
        websocket_port=port,
        model_loaded=latest.spec.name if latest else None,
        checkpoint_loaded=latest.spec.checkpoint if latest else None,
        all_models_loaded=[_loaded_model(model, addresses=addresses, detail=detail) for model in loaded],
        pinned_models={kind: sum(model.pinned and model.spec.type == kind for model in loaded) for kind in _TYPES},
        max_models={**most, "transcription": most["audio"]},
        lemonbus=OperatorHealth(
            state=health.status,
            boot=health.boot,
            pid=health.pid,
            uptime_seconds=round(health.uptime, 3),
            granted=health.granted,
            queued=health.queued,
            models=[_running_model(model, detail=detail) for model in health.models],
            former_models=health.former_models,
            troubled=[_failed_model(model, detail=detail) for model in health.troubled],
            problems=health.problems,
            downloads=health.downloads,
            processes=health.peers,
            counters=health.counters,
        ),
    )


def _loaded_model(model: RunningModel, *, addresses: bool, detail: bool) -> LoadedModelEntry:
    """Return a loaded model. ``detail``: with its engine's command line, which contains paths of this machine."""
    spec = model.spec
    url = model.backend_url.rstrip("/") if addresses else ""
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
    )


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


class StatsQuery(msgspec.Struct):
    """For the last request of one model."""

    model: str | msgspec.UnsetType = msgspec.UNSET


class RequestStats(msgspec.Struct):
    """Tokens and seconds of the last finished request."""

    time_to_first_token: float
    tokens_per_second: float
    input_tokens: int
    """Those in the prompt that were not cached."""
    output_tokens: int
    decode_token_times: list[float]
    prompt_tokens: int
    cached_tokens: int
    cache_tokens: int
    """The same, under the name that Lemonade's app uses."""
    model: str | None
    total_seconds: float


@route("GET", "stats", monitors=True, failures=MODEL)
def show_stats(caller: HttpCaller, query: StatsQuery) -> RequestStats:
    """Shows tokens and times of the last finished request."""
    model = query.model or ""
    return request_stats(caller.ask(lambda number: GetStats(number, model, caller.context.models), StatsReport))


def request_stats(stats: StatsReport) -> RequestStats:
    """Return the tokens and times as the documents call them."""
    outcome = stats.outcome
    return RequestStats(
        time_to_first_token=outcome.first_token_s,
        tokens_per_second=outcome.tokens_per_second,
        input_tokens=max(0, outcome.prompt_tokens - outcome.cached_tokens),
        output_tokens=outcome.output_tokens,
        decode_token_times=outcome.each_token_s,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        cache_tokens=outcome.cached_tokens,
        model=stats.model or None,
        total_seconds=outcome.total_s,
    )
