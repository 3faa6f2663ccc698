"""Reconcile: all drains, grants, checks, loads and stops that the present state allows. Pure.

Called after every event.  It derives everything from the state, so that there is nothing to undo: a drain that is not
needed any more is simply called off.

A model that is to be evicted accepts no request that came after the one that it is evicted for; it is only stopped once
the other model has passed all checks that need no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from supervisor.scheduler import model_changes, spare_workers
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.eviction import (
    Blocked,
    Capacity,
    Evict,
    EvictionReason,
    Fits,
    LoadedModel,
    LoadRequest,
    decide_eviction,
)
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.queue import answers
from supervisor.scheduler.queue.grants import announce_queued, grant_queued
from supervisor.scheduler.scheduled_model import ScheduledModel, ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_events import EVICTED, stop_reason
from supervisor.scheduler.worker_states import WorkerState

MAX_REMEMBERED_FAILURES: Final = 64
"""So many models without a worker have their last failure remembered."""
_LAST_ORDER: Final = 1 << 62
ABANDONED: Final = "abandoned"
"""The reason for the restart of an engine that only works for clients that are gone."""


class EvictionClaim(NamedTuple):
    """A model is to be evicted for a request of this order; ``sure``: the model that comes has been checked."""

    order: int
    sure: bool
    reason: EvictionReason


def reconcile_unless_settled(state: SchedulerState, now: float) -> None:
    """Like :func:`reconcile`, but free while nothing waits or moves. For requests, their ends and cancels alone."""
    if not state.settled:
        reconcile(state, now)


def reconcile(state: SchedulerState, now: float) -> None:
    """Do all that can be done now."""
    models = list(state.models.values())
    for model in models:
        if not state.closing:
            model_changes.update_demand(state, model, now)
        _restart(state, model, now)
        if not model.demanded:
            _release_if_checked(state, model)
    candidates = [] if state.closing else models_to_load(models)
    claims = _assign_workers(state, candidates, now)
    for model in models:
        _drain_or_resume(state, model, claims.get(model.name))
        _grant(state, model, claims.get(model.name), now)
        _finish_drain(state, model, claims.get(model.name))
        announce_queued(state, model, now)
    if not state.closing:
        spare_workers.replace_silent_workers(state, now)
        spare_workers.keep_spares(state, candidates, now)
    _forget_unused(state, now)
    state.settled = _is_settled(state, now)


def _is_settled(state: SchedulerState, now: float) -> bool:
    """Return whether only an event can give anything to do: all models are ready, and nothing waits."""
    return (
        not state.closing
        and not state.spawn_backoff.pause(now)
        and all(process.state in (WorkerState.READY, WorkerState.SPARE) for process in state.workers.values())
        and all(_has_nothing_to_do(model) for model in state.models.values())
    )


def _has_nothing_to_do(model: ScheduledModel) -> bool:
    if model.queue or model.loaders or model.unloaders or model.pending_spec is not None:
        return False
    return model.state is ModelState.READY or model.unused()


# ---- loads -------------------------------------------------------------------------------------------------------


def _restart(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """Start the engine again in a worker that survived its death."""
    process = model.process
    if model.state is not ModelState.RESTARTING or process is None or model.spec is None:
        return
    if not model.keep_loaded or model.unloaders or state.closing:
        model_changes.unload(state, model, process)
    elif model.pending_spec is not None:
        model_changes.reload(state, model, process)
    elif model.backoff.pause(now) == 0.0:
        model_changes.start_engine(state, model, model.spec, process)
        state.count("restarts")


def models_to_load(models: Iterable[ScheduledModel]) -> list[ScheduledModel]:
    """Return the models that are to be loaded and have no engine, in the order in which they were asked for."""
    candidates = [model for model in models if model.state in TO_BE_LOADED and model.demanded]
    return sorted(candidates, key=lambda model: model.order if model.order is not None else _LAST_ORDER)


def _assign_workers(state: SchedulerState, candidates: list[ScheduledModel], now: float) -> dict[str, EvictionClaim]:
    """Give workers to the models that are to be loaded, load those that fit, and return which models are to be evicted."""
    spares = [process for process in state.workers.values() if process.state is WorkerState.SPARE] if candidates else []
    claims: dict[str, EvictionClaim] = {}
    ahead: list[LoadedModel] = []
    for model in candidates:
        process, spec = model.process, model.spec
        if spec is None:
            continue
        memory = process.memory if process else model.memory
        loaded_models = [*(_loaded_model(other, at, claims) for at, other in _loaded_workers(state)), *ahead]
        request = LoadRequest(model.name, model.type, memory, spec.npu)
        verdict = decide_eviction(request, loaded_models, Capacity(state.limits.models, state.memory))
        if isinstance(verdict, Blocked):
            _refuse_all_pinned(state, model, verdict)
            continue
        if not isinstance(verdict, Fits) and not _may_displace(model, now):
            _refuse_failing(state, model, now)
            continue
        ahead.append(LoadedModel(model.name, model.type, now, busy=True, movable=False, memory=memory, npu=spec.npu))
        if isinstance(verdict, Evict):
            sure = model.state is ModelState.CHECKED
            for evicted, reason in zip(verdict.models, verdict.reasons, strict=True):
                claims[evicted] = EvictionClaim(model.order or 0, sure, reason)
        if process is None and spares:
            model_changes.begin_check(state, model, spec, spares.pop())
        elif process is not None and model.state is ModelState.CHECKED and isinstance(verdict, Fits):
            model_changes.start_engine(state, model, spec, process)
    return claims


def _loaded_workers(state: SchedulerState) -> Iterable[tuple[ScheduledWorker, ScheduledModel]]:
    for process in state.workers.values():
        if process.model is not None and process.counts_as_loaded:
            yield process, process.model


def _loaded_model(model: ScheduledModel, process: ScheduledWorker, claims: dict[str, EvictionClaim]) -> LoadedModel:
    return LoadedModel(
        model.name,
        model.type,
        model.last_use,
        busy=bool(model.grants),
        pinned=model.pinned,
        movable=process.serves,
        leaving=process.state is WorkerState.STOPPING or model.name in claims,
        draining=process.state is WorkerState.DRAINING,
        memory=process.memory,
        npu=model.spec.npu if model.spec else "",
    )


def _may_displace(model: ScheduledModel, now: float) -> bool:
    """Return whether others may be evicted for it: something waits for it, and it is not known to fail."""
    return model.order is not None and (bool(model.loaders) or not model.backoff.suspect(now))


def _refuse_all_pinned(state: SchedulerState, model: ScheduledModel, verdict: Blocked) -> None:
    _release_if_checked(state, model)
    model_changes.stop_keeping(model)
    reason = (
        f"Model {model.name} cannot be loaded, because no other may be evicted; pinned are {', '.join(verdict.pins)}"
    )
    answers.refuse_waiting(state, model, Failure(Code.ALL_PINNED, reason, model=model.name))


def _refuse_failing(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """It died or failed while others are well: it displaces no other model."""
    _release_if_checked(state, model)
    model_changes.stop_keeping(model)
    model_changes.drop_requested_options(model)
    known = model.backoff.failure
    if known is None:
        return
    reason = (
        f"Model {model.name} could not be loaded last time, so it displaces no other model "
        f"until it is loaded explicitly: {known.message}"
    )
    pause = max(state.limits.restarts.first, model.backoff.suspect_for(now))
    failure = Failure(Code.BACKING_OFF, reason, model=model.name, retry_after=pause, detail=known.detail)
    answers.refuse_waiting(state, model, failure)


def _release_if_checked(state: SchedulerState, model: ScheduledModel) -> None:
    """Make the worker a spare again that has checked a model; a check that is under way goes on."""
    if model.state is ModelState.CHECKED:
        model_changes.release_worker(state, model)


# ---- drains and grants -------------------------------------------------------------------------------------------


def _drain_or_resume(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None) -> None:
    process = model.process
    if process is None or not process.serves:
        return
    must = claim is not None or model.unloaders or model.pending_spec is not None or state.closing or model.stuck
    if must and model.state is ModelState.READY:
        model_changes.drain(model, process)
        fields = {"model": model.name, "worker": process.worker, "why": stop_reason(state, model)}
        state.emit(LogDecision("info", "draining", fields))
    elif not must and model.state is ModelState.DRAINING:
        model_changes.resume(model, process)
        answers.answer_loads(state, model)  # that came while it drained


def _grant(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None, now: float) -> None:
    process = model.process
    if process is None or not process.serves or model.unloaders or model.pending_spec is not None:
        return
    before = max(model.cutoff, claim.order) if claim else _LAST_ORDER
    grant_queued(state, model, process, before, now)


def _finish_drain(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None) -> None:
    """Stop a draining model that has no client any more."""
    process = model.process
    if process is None or model.state is not ModelState.DRAINING or model.has_clients:
        return
    asked = bool(model.unloaders) or model.pending_spec is not None or state.closing
    evicted = claim is not None and claim.sure
    if not asked and not evicted and not model.stuck:
        return
    if model.grants:
        why = EVICTED if evicted and not asked else stop_reason(state, model)
        fields = {"model": model.name, "worker": process.worker, "why": why}
        state.emit(LogDecision("warning", "engine ended, the clients of its requests are gone", fields))
    if asked:
        reload = model.pending_spec is not None and not model.unloaders and not state.closing
    else:
        # Without a claim it is loaded again as after a death: without a request.
        reload = not evicted
        state.count("restarts" if reload else "evictions")
        if claim is not None and evicted:
            state.metrics.model_evicted(claim.reason)
        else:
            state.metrics.engine_restarted(ABANDONED)
    stop = model_changes.reload if reload else model_changes.unload
    stop(state, model, process)


# ---- memory of the past ------------------------------------------------------------------------------------------


def _forget_unused(state: SchedulerState, now: float) -> None:
    """Forget the models of which nothing is left, and the oldest failures if there are very many."""
    unused = [model for model in state.models.values() if model.unused()]
    failed = sorted(
        (model for model in unused if model.backoff.suspect(now)), key=lambda model: model.backoff.failed_at
    )
    remembered = failed[-MAX_REMEMBERED_FAILURES:]
    for model in unused:
        if model not in remembered:
            model_changes.forget(state, model)
