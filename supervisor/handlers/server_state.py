"""Calls about the server as a whole: its health, its latest figures and its log; and the end of a call whose client hung up."""

from __future__ import annotations

import math
import os
import time
from typing import Final

from msgspec import structs

from protocol import RELEASE
from protocol.config.api_keys import model_allowed
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.calls import AbandonCall
from protocol.messages.health import (
    FailedModel,
    GetHealth,
    GetStats,
    HealthReport,
    QueueShare,
    RunningModel,
    StatsReport,
)
from protocol.messages.log_stream import FollowLogs
from protocol.models.devices import GPUS
from protocol.models.recipes import ModelType
from protocol.wire import endpoints
from supervisor.keeper import process_tree
from supervisor.models import compatibility
from supervisor.responses.response_store import Owner
from supervisor.runtime.supervisor import Handler, Supervisor
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import NO_TTL
from supervisor.scheduler.queue.work_items import key_of
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel
from supervisor.scheduler.state import SchedulerState


def abandon_call(supervisor: Supervisor, peer: str, call: AbandonCall, _payload: bytes) -> None:
    """Forget a call whose client hung up."""
    supervisor.scheduler.call_abandoned(peer, call.number)
    supervisor.downloads.forget(peer, call.number)
    supervisor.logbook.forget(peer, call.number)
    supervisor.responses.call_abandoned(Owner(peer, call.number))
    supervisor.admission.cancelled(RequestKey(peer, call.number, 0))


def _failed_models(scheduler: SchedulerState, now: float) -> list[FailedModel]:
    """Return the models that could not be loaded, whose engines died too often, or whose files were refused."""
    known = [
        FailedModel(model.name, model.backoff.failure, model.backoff.reported_failures, model.backoff.pause(now))
        for model in scheduler.models.values()
        if model.backoff.failure
    ]
    refused = scheduler.failed_checks.recent(now)
    names = {each.model for each in known}
    return known + [
        FailedModel(name, each.failure, each.failures, 0.0) for name, each in refused.items() if name not in names
    ]


def get_health(supervisor: Supervisor, peer: str, call: GetHealth, _payload: bytes) -> None:
    """Answer with the state of the whole server."""
    now = supervisor.loop.now()
    scheduler = supervisor.scheduler
    default = supervisor.models.known(supervisor.models.user_names.default)
    report = HealthReport(
        status="draining" if scheduler.closing else "ok",
        version=RELEASE,
        boot=supervisor.process_context.boot,
        pid=os.getpid(),
        uptime=process_tree.age(supervisor.process_context.keeper),
        models=[
            _running_model(supervisor, model)
            for model in scheduler.models.values()
            if model.process and model.process.counts_as_loaded
        ],
        max_models={kind.value: supervisor.settings.max_loaded_models for kind in ModelType},
        granted=scheduler.busy,
        queued=scheduler.queued,
        troubled=_failed_models(scheduler, now),
        downloads=supervisor.downloads.running(),
        peers=supervisor.peers.all(),
        problems=[
            *([scheduler.spawn_problem.message] if scheduler.spawn_problem else []),
            *supervisor.key_file.problems,
            *supervisor.models.unknown_in_configuration(),
        ],
        former_models=sorted({model.name for model in supervisor.former_workers.values() if model is not None}),
        counters={
            **scheduler.counters,
            "requests_total": int(supervisor.metrics.inference_requests.total),
            "bus_malformed": supervisor.bus.malformed,
            "bus_undeliverable": supervisor.bus.undeliverable,
            "internal_errors": supervisor.errors.count + supervisor.loop.errors,
        },
        default_model=default.name if default is not None else "",
        default_alias=default.short_name if default is not None else "",
        ipc_endpoint=endpoints.bus(supervisor.process_context.runtime),
        gpu_available=not supervisor.models.machine.devices.isdisjoint(GPUS),
        memory_used=sum(model.memory for model in scheduler.models.values() if model.loaded),
        memory_total=compatibility.default_capacity().memory,
    )
    supervisor.calls.answer(peer, call.number, report)


def _running_model(supervisor: Supervisor, model: ScheduledModel) -> RunningModel:
    process = model.process
    if process is None or model.spec is None:
        raise TypeError("not running")
    facts = process.facts
    now = supervisor.loop.now()
    last_use = supervisor.started_at if model.last_use == NEVER else model.last_use
    unused_s = 0.0 if model.grants else now - last_use
    expires_at = model.expires_at
    return RunningModel(
        spec=model.spec,
        worker=process.worker,
        state=model.state.value,
        worker_pid=supervisor.workers.pid(process.worker),
        last_use=math.floor((time.time() - unused_s) * 1000) / 1000,
        slots=model.slots or (facts.slots if facts else 0),
        context=facts.context if facts else 0,
        granted=model.busy,
        queued=len(model.queue),
        queue=_queue_shares(model),
        engine_pid=facts.engine_pid if facts else 0,
        backend_url=facts.backend_url if facts else "",
        load_seconds=facts.seconds if facts else 0.0,
        parameters=facts.parameters if facts else 0,
        gpu_layers=facts.gpu_layers if facts else 0,
        restored_tokens=facts.restored_tokens if facts else 0,
        progress=[grant.progress for grant in model.grants.values() if grant.progress is not None],
        command=facts.command if facts else [],
        is_busy=bool(model.grants or model.queue) or model.state is not ModelState.READY,
        pinned=model.pinned,
        ttl=0.0 if model.ttl == NO_TTL else model.ttl,
        expires_at=0.0 if expires_at is None else round(time.time() + expires_at - now, 3),
    )


def _queue_shares(model: ScheduledModel) -> list[QueueShare]:
    shares: dict[str, QueueShare] = {}
    for position, waiting in enumerate(model.fair_share.order(model.queue.by_key), 1):
        key = key_of(waiting)
        first = shares.get(key) or QueueShare(key, 0, position, round(model.wait_s(position - 1), 3))
        shares[key] = structs.replace(first, requests=first.requests + 1)
    return list(shares.values())


def get_stats(supervisor: Supervisor, peer: str, call: GetStats, _payload: bytes) -> None:
    """Answer with the last finished request's figures, once its worker has reported them."""
    name = supervisor.models.resolve(call.model, call.models).name if call.model else ""
    if name and not model_allowed(call.models, name):
        raise Failure(Code.MODEL_NOT_FOUND, f"Model {call.model} not found", model=call.model, param="model").raised()

    def shown(model: str) -> bool:
        return name in ("", model) and model_allowed(call.models, model)

    def answer() -> None:
        latest = next((model for model in reversed(supervisor.stats_by_model) if shown(model)), name)
        supervisor.calls.answer(peer, call.number, supervisor.stats_by_model.get(latest, StatsReport(latest)))

    # A request whose end was not reported has a grant.
    models = supervisor.scheduler.models.values()
    busy = [each.process.worker for each in models if each.busy and each.process and shown(each.name)]
    supervisor.worker_barrier.wait(busy, answer)


def follow_logs(supervisor: Supervisor, peer: str, call: FollowLogs, _payload: bytes) -> None:
    """Answer with the retained entries, then send new ones."""
    supervisor.calls.answer(peer, call.number, supervisor.logbook.snapshot(call))
    supervisor.logbook.follow(peer, call)


HANDLERS: Final[dict[type, Handler]] = {
    AbandonCall: abandon_call,
    GetHealth: get_health,
    GetStats: get_stats,
    FollowLogs: follow_logs,
}
