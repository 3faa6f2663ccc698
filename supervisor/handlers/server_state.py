"""Calls about the server as a whole: its health, its latest figures and its log; and the end of a call whose client hung up."""

from __future__ import annotations

import math
import os
import time
from typing import Final

from protocol import RELEASE
from protocol.config.api_keys import model_allowed
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.calls import AbandonCall
from protocol.messages.health import (
    GetHealth,
    GetStats,
    HealthReport,
    RunningModel,
    StatsReport,
)
from protocol.messages.log_stream import FollowLogs
from protocol.models.devices import GPUS
from protocol.models.recipes import ModelSpec, ModelType
from protocol.wire import endpoints
from supervisor.keeper import process_tree
from supervisor.models import compatibility
from supervisor.responses.response_store import Owner
from supervisor.runtime.supervisor import Handler, Supervisor
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import NO_TTL
from supervisor.scheduler.view import ModelView


def abandon_call(supervisor: Supervisor, peer: str, call: AbandonCall, _payload: bytes) -> None:
    """Forget a call whose client hung up."""
    supervisor.scheduler.call_abandoned(peer, call.number)
    supervisor.downloads.forget(peer, call.number)
    supervisor.logbook.forget(peer, call.number)
    supervisor.responses.call_abandoned(Owner(peer, call.number))
    supervisor.admission.cancelled(RequestKey(peer, call.number, 0))


def get_health(supervisor: Supervisor, peer: str, call: GetHealth, _payload: bytes) -> None:
    """Answer with the state of the whole server."""
    now = supervisor.loop.now()
    view = supervisor.scheduler.view
    models = view.models()
    default = supervisor.models.known(supervisor.models.user_names.default)
    report = HealthReport(
        status="draining" if view.closing else "ok",
        version=RELEASE,
        boot=supervisor.process_context.boot,
        pid=os.getpid(),
        uptime=process_tree.age(supervisor.process_context.keeper),
        models=[_running_model(supervisor, each, each.spec) for each in models if each.counts_as_loaded and each.spec],
        max_models={kind.value: supervisor.settings.max_loaded_models for kind in ModelType},
        granted=view.busy,
        queued=view.queued,
        troubled=view.failed_models(now),
        downloads=supervisor.downloads.running(),
        peers=supervisor.peers.all(),
        problems=[
            *([view.spawn_problem.message] if view.spawn_problem else []),
            *supervisor.key_file.problems,
            *supervisor.models.unknown_in_configuration(),
        ],
        former_models=sorted({model.name for model in supervisor.former_workers.values() if model is not None}),
        counters={
            **view.counters,
            "requests_total": int(supervisor.metrics.inference_requests.total),
            "bus_malformed": supervisor.bus.malformed,
            "bus_undeliverable": supervisor.bus.undeliverable,
            "internal_errors": supervisor.errors.count + supervisor.loop.errors,
        },
        default_model=default.name if default is not None else "",
        default_alias=default.short_name if default is not None else "",
        ipc_endpoint=endpoints.bus(supervisor.process_context.runtime),
        gpu_available=not supervisor.models.machine.devices.isdisjoint(GPUS),
        memory_used=sum(model.memory for model in models if model.counts_as_loaded),
        memory_total=compatibility.default_capacity().memory,
    )
    supervisor.calls.answer(peer, call.number, report)


def _running_model(supervisor: Supervisor, model: ModelView, spec: ModelSpec) -> RunningModel:
    view, facts = supervisor.scheduler.view, model.facts
    now = supervisor.loop.now()
    last_use = supervisor.started_at if model.last_use is None else model.last_use
    unused_s = 0.0 if model.running else now - last_use
    expires_at = model.expires_at
    return RunningModel(
        spec=spec,
        worker=model.worker,
        state=model.state.value,
        worker_pid=supervisor.workers.pid(model.worker),
        last_use=math.floor((time.time() - unused_s) * 1000) / 1000,
        slots=model.slots or (facts.slots if facts else 0),
        context=facts.context if facts else 0,
        granted=model.busy,
        queued=model.queued,
        queue=view.queue_shares(model.name),
        engine_pid=facts.engine_pid if facts else 0,
        backend_url=facts.backend_url if facts else "",
        load_seconds=facts.seconds if facts else 0.0,
        parameters=facts.parameters if facts else 0,
        gpu_layers=facts.gpu_layers if facts else 0,
        restored_tokens=facts.restored_tokens if facts else 0,
        progress=view.progress(model.name),
        command=facts.command if facts else [],
        is_busy=bool(model.running or model.queued) or model.state is not ModelState.READY,
        pinned=model.pinned,
        ttl=0.0 if model.ttl == NO_TTL else model.ttl,
        expires_at=0.0 if expires_at is None else round(time.time() + expires_at - now, 3),
    )


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
    models = supervisor.scheduler.view.models()
    busy = [each.worker for each in models if each.busy and each.worker and shown(each.name)]
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
