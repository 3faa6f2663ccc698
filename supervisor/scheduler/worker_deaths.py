"""An engine or a worker is gone: which requests it may have died of, and whether its model is tried again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.scheduler import model_changes, spare_workers
from supervisor.scheduler.crash_record import REMEMBERED_S
from supervisor.scheduler.effects import LogDecision, NoteDeath
from supervisor.scheduler.memory import memory_events
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue import answers
from supervisor.scheduler.scheduled_model import ScheduledModel, with_model
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_events import stop_reason


def engine_died(
    state: SchedulerState,
    worker_id: str,
    failure: Failure,
    now: float,
    causes: Sequence[RequestKey] = (),
    *,
    killed: bool = False,
    worked: bool = False,
) -> None:
    """The engine of a ready model is gone. Its worker has told the gateways, and holds no grants any more.

    ``causes``: the attempts that it may have died of. ``worked``: on requests, of which a supervisor that took over may not know.
    ``killed``: by something that wants its memory. An idle engine is not started again then, because the next one would
    be killed for it. One that was busy is loaded like any model that is not loaded, so that it gets memory that is free,
    or that of another model.
    """
    worker = state.workers[worker_id]
    model = worker.model
    if model is None:
        return
    if not worker.serves:  # it was stopped meanwhile, and everything it worked on was abandoned
        model.end_runs()
        return
    counts = _note_causes(state, model, causes, now)
    if (killed or failure.code is Code.OUT_OF_MEMORY) and not worked and not _is_wanted(model):
        _idle_engine_killed(state, model, failure, now)
        model_changes.unload(state, model, worker)
        return
    draining = model.state is ModelState.DRAINING
    model_changes.lose_engine(model, worker)
    _engine_lost(state, model, failure, now, leaving=draining, counts=counts)
    if model.keep_loaded and (draining or (killed and failure.code is Code.OUT_OF_MEMORY)):
        model_changes.reload(state, model, worker)
    elif draining or not model.keep_loaded:
        model_changes.unload(state, model, worker)


def worker_gone(state: SchedulerState, worker_id: str, failure: Failure, now: float) -> None:
    """A worker process is gone, whatever it was doing."""
    worker = state.workers.pop(worker_id, None)
    if worker is None:
        return
    before = worker.state
    worker.transition(WorkerEvent.GONE)
    node_lost = failure.code is Code.NODE_LOST
    if before is WorkerState.SPAWNED and not state.closing and not node_lost:
        spare_workers.spawn_failed(state, state.node_of(worker), failure, now)
    model = worker.model
    if model is None:
        return
    model_changes.lose_worker(model)
    memory_events.engine_gone(state, model, worker, now)
    if node_lost:
        _node_lost(state, model, worker, failure)
    elif before in (WorkerState.READY, WorkerState.DRAINING):
        _engine_lost(state, model, failure, now, leaving=before is WorkerState.DRAINING)
    elif before in (WorkerState.CHECKING, WorkerState.CHECKED, WorkerState.LOADING):
        # Only a worker judges its model; the worker's own death says nothing about it.
        _note_death(state, model, failure, now)
    else:
        model.end_runs()
    answers.answer_unloads(state, model)


def _node_lost(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker, failure: Failure) -> None:
    """The node of a model is gone. That is not the model's failure, so it is loaded elsewhere at once, if it is wanted."""
    _return_runs(model)
    fields = {"model": model.name, "worker": worker.id, "node": worker.node, "reason": failure.message}
    wanted = model.demanded and not state.closing
    event = "node lost, its model is loaded elsewhere" if wanted else "node lost, its model is not needed"
    state.emit(LogDecision("warning", event, fields))


def _is_wanted(model: ScheduledModel) -> bool:
    """Return whether clients wait for a model or use it."""
    return model.has_clients or bool(model.queue or model.loaders or model.unfinished)


def _idle_engine_killed(state: SchedulerState, model: ScheduledModel, failure: Failure, now: float) -> None:
    state.count("engine_deaths")
    state.count("killed_for_memory")
    model.end_runs()
    state.emit(NoteDeath(model.name, failure))
    if model.replica_set.has_another(model):
        model.backoff.load_failed(failure, now)  # it is not loaded again at once
        return
    reason = f"{with_model(model, failure).message}; the model stays unloaded until it is asked for"
    state.failed_checks.note(model.name, structs.replace(failure, model=model.name, message=reason), now)
    fields = {"model": model.name, "reason": failure.message}
    state.emit(LogDecision("error", "idle engine killed, its model stays unloaded until it is asked for", fields))


def _note_causes(state: SchedulerState, model: ScheduledModel, causes: Sequence[RequestKey], now: float) -> bool:
    """Remember which requests an engine died of, if known; return whether the death counts against the model."""
    origins = [model.grants[key].origin for key in causes if key in model.grants]
    if not causes or len(origins) < len(causes):
        return True
    counts = state.crashes.note(model.name, origins, now)
    if len(origins) == 1:
        state.count("engine_deaths_by_request")
        state.metrics.engine_crashed(model.name)
        client, digest = origins[0]
        fields = {"model": model.name, "client": client, "digest": digest, "refused_for": REMEMBERED_S}
        state.emit(LogDecision("warning", "engine died of a request", fields))
    return counts


def _engine_lost(
    state: SchedulerState, model: ScheduledModel, failure: Failure, now: float, *, leaving: bool, counts: bool = True
) -> None:
    state.count("engine_deaths")
    _return_runs(model)
    _note_death(state, model, failure, now, leaving=leaving, counts=counts)


def _return_runs(model: ScheduledModel) -> None:
    """The requests of an engine that is gone may be retried: they keep their positions."""
    model.returning.clear()
    for key, grant in model.grants.items():
        model.expect_return(key, grant.order)
    model.end_runs()


def _note_death(
    state: SchedulerState,
    model: ScheduledModel,
    failure: Failure,
    now: float,
    *,
    leaving: bool = False,
    counts: bool = True,
) -> None:
    """Let the model be tried again at once, unless this happened too often. ``counts``: it is the model's own death."""
    state.emit(NoteDeath(model.name, failure))
    failure = with_model(model, failure)
    fields: dict[str, Any] = {"model": model.name, "reason": failure.message}
    if counts and not model.backoff.died(failure, now):
        fields["retry_in"] = round(model.backoff.pause(now), 3)
        state.emit(LogDecision("error", "engine lost too often, it is not started again for now", fields))
        model_changes.stop_keeping(model)
        refusal = model.backoff.refusal(model.name, now)
        if model.provisional:
            model.backoff.ready()
        answers.refuse_unserved(state, model, refusal)
    elif leaving or state.closing:
        state.emit(
            LogDecision(
                "warning", "engine lost, its model was leaving", {**fields, "unload_reason": stop_reason(state, model)}
            )
        )
    elif model.demanded:
        state.metrics.engine_restarted(model.name, failure.code)
        state.emit(LogDecision("warning", "engine lost, it is started again", fields))
    else:
        state.emit(LogDecision("warning", "engine lost, it is not needed", fields))
