"""Whose turn it is: drains, grants, checks and loads that the present state allows. Pure.

Called after every event.  It derives everything from the state, so that there is nothing to undo: a drain
that nobody needs any more is simply not asked for again.

A model that must make room stops taking whoever came after the one that waits for its place, from the moment
that one asked; it is only stopped once the other has passed all checks that need no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.messages.leases import RevokeLease
from protocol.messages.peers import CheckModel, StartEngine
from supervisor.scheduler import spare_workers
from supervisor.scheduler.effects import LogDecision, SendMessage
from supervisor.scheduler.eviction import Blocked, Capacity, Evict, Fits, LoadedModel, LoadRequest, decide_eviction
from supervisor.scheduler.leases import pause_after
from supervisor.scheduler.scheduled_model import ScheduledModel, ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_lifecycle import WorkerEvent, WorkerState

MAX_REMEMBERED_FAILURES: Final = 64
"""Models without a worker whose last failure is remembered."""
_LAST_ORDER: Final = 1 << 62


class EvictionClaim(NamedTuple):
    """Somebody must make room for a request of this order; ``sure``: the one who comes has been checked."""

    order: int
    sure: bool


def reconcile(state: SchedulerState, now: float) -> None:
    """Do all that can be done now."""
    models = state.models.values()
    for model in list(models):
        _restart(state, model, now)
        if model.order is None and not model.wanted:
            _release_if_checked(state, model)
    candidates = [] if state.closing else models_to_load(models, now)
    claims = _claims(state, candidates, now)
    for model in list(models):
        _drain_or_resume(state, model, claims.get(model.name))
        _grant(state, model, claims.get(model.name), now)
        _finish_drain(state, model, claims.get(model.name))
    if not state.closing:
        spare_workers.replace_silent_workers(state, now)
        spare_workers.keep_spares(state, candidates, now)
    _forget_unused(state, now)
    state.settled = _settled(state, now)
    if not state.settled:
        _recall(state, now)


def _recall(state: SchedulerState, now: float) -> None:
    """Want all leases back: somebody waits, or something moves, and then everything is decided here."""
    for model in state.models.values():
        recalled = False
        for gateway, lease in model.leases.items():
            if not lease.recalled and model.process is not None:
                lease.recalled = recalled = True
                state.emit(SendMessage(model.process.worker, RevokeLease(gateway, lease.number)))
        if recalled:
            state.count("recalls")
            model.lend_pause = pause_after(model, now)
            model.recalled = now


def _settled(state: SchedulerState, now: float) -> bool:
    """Return whether only an event can give anything to do: all that runs is ready, and nobody waits."""
    return (
        not state.closing
        and not state.spawn_backoff.pause(now)
        and all(process.state in (WorkerState.READY, WorkerState.SPARE) for process in state.workers.values())
        and all(_has_nothing_to_do(model) for model in state.models.values())
    )


def _has_nothing_to_do(model: ScheduledModel) -> bool:
    waits = model.queue or model.loaders or model.unloaders or model.reload_spec or model.fetching
    return not waits and (model.process is not None or not model.wanted)


def _restart(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """Start the engine again in a worker that survived its death."""
    process = model.process
    if process is None or process.state is not WorkerState.FAILED:
        return
    if not model.wanted or model.unloaders or model.reload_spec or model.spec is None or state.closing:
        state.stop_worker(process)
    elif model.backoff.pause(now) == 0.0:
        process.transition(WorkerEvent.LOAD)
        state.count("restarts")
        state.emit(SendMessage(process.worker, StartEngine(model.spec)))


def models_to_load(models: Iterable[ScheduledModel], now: float) -> list[ScheduledModel]:
    """Return the models that want to be loaded and are not, whoever waits longest first."""
    candidates = [
        model
        for model in models
        if model.spec is not None
        and (model.process is None or model.process.state in (WorkerState.CHECKING, WorkerState.CHECKED))
        and (model.order is not None or model.wanted)
        and (model.loaders or model.backoff.pause(now) == 0.0)
    ]
    return sorted(candidates, key=lambda model: model.order if model.order is not None else _LAST_ORDER)


def _claims(state: SchedulerState, candidates: list[ScheduledModel], now: float) -> dict[str, EvictionClaim]:
    """Seat those who want to be loaded, and return who must leave for them."""
    spares = [process for process in state.workers.values() if process.state is WorkerState.SPARE] if candidates else []
    claims: dict[str, EvictionClaim] = {}
    ahead: list[LoadedModel] = []
    for model in candidates:
        process = model.process
        memory = process.memory if process else model.memory
        loaded_models = [
            *(_loaded_model(other, model_of, claims) for other, model_of in _loaded_workers(state)),
            *ahead,
        ]
        request = LoadRequest(model.name, model.type, memory, _npu(model))
        verdict = decide_eviction(request, loaded_models, Capacity(state.limits.models, state.memory))
        if isinstance(verdict, Blocked):
            _refuse_all_pinned(state, model, verdict)
            continue
        if not isinstance(verdict, Fits) and not _may_displace(model, now):
            _refuse_failing(state, model, now)
            continue
        ahead.append(LoadedModel(model.name, model.type, now, busy=True, movable=False, memory=memory, npu=request.npu))
        if isinstance(verdict, Evict):
            sure = process is not None and process.state is WorkerState.CHECKED
            claims |= dict.fromkeys(verdict.models, EvictionClaim(model.order or 0, sure))
        if model.spec is None:
            continue
        if process is None and spares:
            process = model.process = spares.pop()
            process.model, process.idle_since = model, None
            process.transition(WorkerEvent.CHECK)
            state.emit(SendMessage(process.worker, CheckModel(model.spec)))
        elif process is not None and process.state is WorkerState.CHECKED and isinstance(verdict, Fits):
            process.transition(WorkerEvent.LOAD)
            state.emit(SendMessage(process.worker, StartEngine(model.spec)))
    return claims


def _may_displace(model: ScheduledModel, now: float) -> bool:
    """Whether others must make room: somebody waits for it, and it is not known to fail."""
    return model.order is not None and (bool(model.loaders) or not model.backoff.suspect(now))


def _refuse_all_pinned(state: SchedulerState, model: ScheduledModel, verdict: Blocked) -> None:
    _release_if_checked(state, model)
    model.wanted = False
    reason = f"No place for model {model.name}: pinned are {', '.join(verdict.pins)}"
    state.refuse_waiting(model, Failure(Code.ALL_PINNED, reason, model=model.name))


def _refuse_failing(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """It died or failed while others are well: it displaces nobody."""
    _release_if_checked(state, model)
    model.wanted = False
    model.previous_spec = None
    known = model.backoff.failure
    if known is None:
        return
    reason = (
        f"Model {model.name} could not be loaded last time, so it displaces no other model "
        f"until it is loaded explicitly: {known.message}"
    )
    pause = max(state.limits.restarts.first, model.backoff.suspect_for(now))
    state.refuse_waiting(
        model, Failure(Code.BACKING_OFF, reason, model=model.name, retry_after=pause, detail=known.detail)
    )


def _release_if_checked(state: SchedulerState, model: ScheduledModel) -> None:
    """Give a seat that has checked a model back to the spares; a check that is under way goes on."""
    if model.process is not None and model.process.state is WorkerState.CHECKED:
        state.release(model)


def _loaded_workers(state: SchedulerState) -> Iterable[tuple[ScheduledWorker, ScheduledModel]]:
    for process in state.workers.values():
        if process.model is not None and process.counts_as_loaded:
            yield process, process.model


def _loaded_model(process: ScheduledWorker, model: ScheduledModel, claims: dict[str, EvictionClaim]) -> LoadedModel:
    return LoadedModel(
        model.name,
        model.type,
        model.last_use,
        busy=model.busy > 0,
        pinned=model.pinned,
        movable=process.serves,
        leaving=process.state is WorkerState.STOPPING or model.name in claims,
        draining=process.state is WorkerState.DRAINING,
        memory=process.memory,
        npu=_npu(model),
    )


def _npu(model: ScheduledModel) -> str:
    return model.spec.npu if model.spec else ""


def _drain_or_resume(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None) -> None:
    process = model.process
    if process is None or not process.serves:
        return
    must = claim is not None or bool(model.unloaders) or model.reload_spec is not None or state.closing or model.stuck
    if must and process.state is WorkerState.READY:
        process.transition(WorkerEvent.DRAIN)
        state.emit(
            LogDecision(
                "info", "draining", {"model": model.name, "worker": process.worker, "why": state.unload_reason(model)}
            )
        )
    elif not must and process.state is WorkerState.DRAINING:
        process.transition(WorkerEvent.RESUME)
        # Calls that came while it drained wait for a load that is no longer needed.
        state.answer_loaded(model, model.loaders)
        model.loaders = []


def _grant(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None, now: float) -> None:
    """Grant from the head of the queue while slots are free; nobody overtakes, so nobody starves."""
    process = model.process
    if process is None or not process.serves or process.facts is None or model.unloaders or model.reload_spec:
        return
    before = max(model.cutoff, claim.order) if claim else _LAST_ORDER
    slots = process.facts.slots
    while model.queue:
        waiting = model.queue[0]
        weight = slots if waiting.ask.suspect else min(max(1, waiting.ask.weight), slots)
        if waiting.order >= before or model.busy + weight > slots:
            return
        model.dequeue(waiting.key)
        state.grant(model, process, waiting, weight, now)


def _finish_drain(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None) -> None:
    process = model.process
    if process is None or process.state is not WorkerState.DRAINING or model.needed:
        return
    asked = bool(model.unloaders) or model.reload_spec is not None or state.closing
    makes_room = claim is not None and claim.sure
    if not asked and not makes_room and not model.stuck:
        return
    if model.stuck and not asked and not makes_room:
        # It is loaded again as after a death: without a request.
        model.wanted = True
        state.count("restarts")
    elif not asked:
        state.count("evictions")
        model.wanted = False
    if model.grants:
        fields = {"model": model.name, "worker": process.worker, "why": state.unload_reason(model)}
        state.emit(LogDecision("warning", "engine ended, what it works on nobody wants", fields))
    if model.reload_spec:
        model.previous_spec, model.spec, model.reload_spec = model.spec, model.reload_spec, None
    state.stop_worker(process)


def _forget_unused(state: SchedulerState, now: float) -> None:
    """Forget the models of which nothing is left, and the oldest failures if there are very many."""
    unused = [model for model in state.models.values() if model.unused()]
    failed = sorted(
        (model for model in unused if model.backoff.suspect(now)), key=lambda model: model.backoff.failed_at
    )
    remembered = failed[-MAX_REMEMBERED_FAILURES:]
    for model in unused:
        if model not in remembered:
            state.forget_model(model)
