"""Makes the report about the running server from what the other parts say at one moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from protocol.messages.health import DiskSpace, FailedModel, LoadInProgress, ReplicaReport
from protocol.messages.model_files import DownloadReport
from protocol.messages.model_overview import ModelDeath, ModelDeaths, ModelFailure, ModelLoad, ModelOverview, WaitingKey
from protocol.messages.node_reports import NodeReport
from protocol.messages.overview import Disk, Download, NodeOverview, PlaceMemory, RequestOverview
from protocol.models.memory import Capacity
from supervisor.metrics.recent_figures import ModelSpeed
from supervisor.overview.dates import Dates
from supervisor.overview.running_tokens import TokensSoFar
from supervisor.persistence.server_record import Deaths
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view_values import ModelView, RequestView, WaitingShare

_MIB: Final = 1024 * 1024
MAX_WAITING_KEYS: Final = 50
"""API keys that are listed of those that wait for one model: those with the most requests."""


class ModelSources(NamedTuple):
    """All that is known of one model; None and empty: nothing."""

    view: ModelView | None = None
    load: LoadInProgress | None = None
    failed: FailedModel | None = None
    deaths: Deaths | None = None
    speed: ModelSpeed = ModelSpeed()
    shares: Iterable[WaitingShare] = ()
    device: str = ""
    worker_pid: int = 0
    node: str = ""
    replicas: Sequence[ReplicaReport] = ()

    @property
    def is_shown(self) -> bool:
        """Whether there is more to say of the model than that it is known."""
        view = self.view
        used = view is not None and (view.worker or view.queued or view.pinned or view.state is not ModelState.ABSENT)
        return bool(used or self.load or self.failed or self.deaths)


def model_overview(model: ModelSources, dates: Dates, now: float) -> ModelOverview:
    """Return what is shown of a model. ``now``: by the clock that ``dates`` knows."""
    view = model.view
    shown = ModelOverview(
        view.state.value if view is not None else ModelState.ABSENT.value,
        load=_load(model.load, dates, now) if model.load is not None else None,
        failure=_failure(model.failed, dates, now) if model.failed is not None else None,
        deaths=_deaths(model.deaths, dates) if model.deaths is not None else None,
    )
    if view is None:
        return shown
    facts, spec = view.facts, view.spec
    shares = sorted(model.shares, key=lambda share: -share.requests)[:MAX_WAITING_KEYS]
    return structs.replace(
        shown,
        type=view.type,
        recipe=spec.recipe if spec is not None else "",
        device=model.device,
        labels=spec.labels if spec is not None else [],
        slots=view.slots,
        running=view.running,
        waiting=view.queued,
        queue=[WaitingKey(each.api_key, each.requests, round(each.wait_s, 1)) for each in shares],
        context=facts.context if facts is not None else 0,
        memory=view.memory,
        memory_by_place=dict(view.need),
        tokens_per_second=model.speed.tokens_per_second,
        first_token_p50=model.speed.first_token_s,
        queue_wait_p50=model.speed.queue_s,
        last_use=dates.of(view.last_use) if view.last_use is not None else 0.0,
        expires_at=dates.of(view.expires_at) if view.expires_at is not None else 0.0,
        pinned=view.pinned,
        loaded_at=dates.of(view.ready_at) if view.ready_at is not None else 0.0,
        load_seconds=round(facts.seconds, 3) if facts is not None else 0.0,
        worker_pid=model.worker_pid,
        engine_pid=facts.engine_pid if facts is not None else 0,
        command=facts.command if facts is not None else [],
        node=model.node,
        replicas=list(model.replicas),
    )


def _load(load: LoadInProgress, dates: Dates, now: float) -> ModelLoad:
    asked_at = round(dates.of(now - load.age), 1)  # the age is rounded, so a smaller digit would change all the time
    return ModelLoad(
        load.stage,
        asked_at,
        waiting=load.waiting,
        done=load.done,
        total=load.total,
        unit=load.unit,
        node=load.node,
    )


def _failure(failed: FailedModel, dates: Dates, now: float) -> ModelFailure:
    failure = failed.failure
    return ModelFailure(
        failure.code.value,
        failure.message,
        failed.failures,
        retry_at=round(dates.of(now + failed.retry_in), 1) if failed.retry_in else 0.0,
        detail=failure.detail,
    )


def _deaths(deaths: Deaths, dates: Dates) -> ModelDeaths:
    return ModelDeaths(deaths.count, [ModelDeath(dates.of(each.at), each.code, each.reason) for each in deaths.last])


def request_overview(request: RequestView, so_far: TokensSoFar, dates: Dates) -> RequestOverview:
    """Return what is shown of a request that waits or runs."""
    facts, granted_at = request.facts, request.granted_at
    return RequestOverview(
        id=facts.label if facts is not None else "",
        model=request.model,
        endpoint=facts.endpoint if facts is not None else "",
        state="waiting" if granted_at is None else "running",
        arrived_at=dates.of(request.since),
        key=request.api_key,
        dialect=facts.dialect if facts is not None else "",
        stream=facts is not None and facts.stream,
        granted_at=dates.of(granted_at) if granted_at is not None else 0.0,
        position=request.position,
        wait_s=round(request.wait_s, 1),
        tokens=so_far.tokens,
        first_token_at=dates.of(so_far.first_at) if so_far.first_at else 0.0,
    )


def download_of(report: DownloadReport) -> Download:
    """Return what is shown of a download."""
    progress, failure = report.progress, report.failure
    state = "failed" if failure is not None else "done" if report.ended else "paused" if report.paused else "running"
    return Download(
        state=state,
        done=progress.bytes_downloaded if progress is not None else 0,
        total=progress.bytes_total if progress is not None else 0,
        file=progress.file if progress is not None else "",
        file_index=progress.file_index if progress is not None else 0,
        files=progress.total_files if progress is not None else 0,
        message=failure.message if failure is not None else "",
    )


def memory_of(capacities: Iterable[Capacity]) -> dict[str, PlaceMemory]:
    """Return the memory by place. Less than a MiB of it changes all the time, and says nothing."""
    return {
        each.place: PlaceMemory(
            total=each.total,
            free=each.free // _MIB * _MIB,
            name=each.name,
            used_percent=each.used_percent,
            limited_by=each.limit,
        )
        for each in capacities
    }


def nodes_of(reports: Iterable[NodeReport], dates: Dates, now: float) -> dict[str, NodeOverview]:
    """Return the machines of the server by name, the head first."""
    return {
        each.facts.name: NodeOverview(
            each.state.value,
            since=round(dates.of(now - each.age), 1),
            address=each.facts.address,
            cpus=each.facts.cpus,
            devices=each.facts.devices,
            memory=memory_of(each.memory),
            models=each.models,
            reason=each.reason,
        )
        for each in reports
    }


def used_memory(capacities: Iterable[Capacity]) -> dict[str, int]:
    """Return the bytes in use, by place."""
    return {each.place: each.total - each.free for each in capacities}


def disks_of(disks: Iterable[DiskSpace]) -> dict[str, Disk]:
    """Return the disks, by what is there."""
    return {each.directory: Disk(each.free // _MIB * _MIB, each.size) for each in disks}
