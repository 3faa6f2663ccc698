"""Which models get a worker and are loaded now, which are evicted for them, and which are refused. Pure.

A part of :mod:`supervisor.scheduler.reconcile`; :mod:`supervisor.scheduler.eviction` decides which models must leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.scheduler import model_changes, replication, worker_events
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    EvictionReason,
    Fits,
    Insufficient,
    LoadedModel,
    LoadLimits,
    LoadRequest,
    Verdict,
    Wait,
    decide_eviction,
    models_over_limits,
)
from supervisor.scheduler.memory import fitting, memory_events
from supervisor.scheduler.memory.fitting import ModelMemory
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.queue import answers
from supervisor.scheduler.replica_set import model_name
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_events import EVICTED

LAST_ORDER: Final = 1 << 62
"""After every request."""
_OBSTACLES: Final = {
    EvictionReason.NPU: "beside another model on the NPU",
    EvictionReason.GROUP: "beside others because of its group or theirs",
    EvictionReason.LIMIT: "beyond max_loaded_models",
    EvictionReason.MEMORY: "beside others because of their memory",
}
"""Why a pinned model would have to be evicted, in words."""
RETRY_S: Final = 30.0
"""When a client may ask again for a model for which other programs leave too little memory."""


class EvictionClaim(NamedTuple):
    """A model is to be evicted for a request of this order. ``sure``: the model to be loaded has been checked.

    Order 0: not for a request, but because the settings do not let it stay beside others.
    """

    order: int
    sure: bool
    reason: EvictionReason
    model: str = ""
    """The model to be loaded."""
    request: str = ""
    """What it is loaded for: the id of a request, or ``load``."""

    @property
    def why(self) -> str:
        """The reason in words, for the log."""
        return EVICTED if self.order else "the settings no longer allow it beside others"


def models_to_load(models: Iterable[ScheduledModel]) -> list[ScheduledModel]:
    """Return the models that are to be loaded and have no engine, in the order in which they were requested."""
    candidates = [model for model in models if model.state in TO_BE_LOADED and model.demanded]
    return sorted(candidates, key=lambda model: model.order if model.order is not None else LAST_ORDER)


def claims_of_settings(state: SchedulerState) -> dict[str, EvictionClaim]:
    """Return claims on models that changed settings do not let stay beside others."""
    loaded, most, groups = list(_loaded_workers(state)), state.limits.models, state.policies.groups
    if state.closing or (not groups and len(loaded) <= most):
        return {}
    over = models_over_limits([_loaded_model(model, worker, {}) for worker, model in loaded], most, groups)
    return {name: EvictionClaim(0, sure=True, reason=reason) for name, reason in over.items()}


def assign_workers(
    state: SchedulerState, candidates: list[ScheduledModel], claims: dict[str, EvictionClaim], now: float
) -> None:
    """Assign workers to the models that must be loaded, load those that fit, and add ``claims`` on those to evict."""
    head = state.nodes[HEAD]
    spares = [worker for worker in state.workers.values() if worker.state is WorkerState.SPARE and worker.node == HEAD]
    limits = LoadLimits(state.limits.models, memory_events.available_memory(state, head, now), state.policies.groups)
    ahead: list[LoadedModel] = []
    for model in candidates:
        worker, spec = model.worker, model.spec
        if spec is None:
            continue
        checked = model.state is ModelState.CHECKED
        # Old figures would start, refuse or unload too much. A model that runs elsewhere takes nothing of this machine.
        ready = checked and (spec.elsewhere or not head.memory.unknown)
        loaded_models = [*(_loaded_model(other, at, claims) for at, other in _loaded_workers(state)), *ahead]
        # What an earlier check found may have changed: only after a check does memory decide.
        estimate = model.estimate if checked else MemoryEstimate()
        request = LoadRequest(model.key, model.type, estimate, spec.npu, model.policy.groups)
        verdict = verdict_of(spec, request, loaded_models, limits)
        if not ready and isinstance(verdict, Insufficient | Blocked) and verdict.shortfall is not None:
            verdict = Wait(memory=True)
        if _refused(state, model, verdict, now, undecided=checked and not ready):
            continue
        model.lacks_memory = _lacks_memory(verdict)
        context = verdict.context if isinstance(verdict, Fits) else 0
        if not spec.elsewhere:
            ahead.append(_model_ahead(request._replace(estimate=model.estimate), context, now))
        if isinstance(verdict, Evict):
            for evicted, reason in zip(verdict.models, verdict.reasons, strict=True):
                sure = ready and not (verdict.waits and reason is EvictionReason.MEMORY)
                claims[evicted] = EvictionClaim(model.order or 0, sure, reason, model.name, _requested_by(model))
        if worker is None and spares:
            model_changes.begin_check(state, model, spec, spares.pop())
        elif worker is not None and ready and isinstance(verdict, Fits):
            model_changes.choose_context(worker, context)
            model_changes.start_engine(state, model, spec, worker, now)


def verdict_of(spec: ModelSpec, request: LoadRequest, loaded: list[LoadedModel], limits: LoadLimits) -> Verdict:
    """Decide about a load. A model that runs elsewhere takes nothing of this machine, so it always fits."""
    return Fits() if spec.elsewhere else decide_eviction(request, loaded, limits)


def _refused(state: SchedulerState, model: ScheduledModel, verdict: Verdict, now: float, *, undecided: bool) -> bool:
    """Refuse everything that waits for a model that cannot be loaded, or evicts no others; return whether it was.

    ``undecided``: memory must be read again first. A further replica that does not fit is given up, and refuses nothing.
    """
    refusal = refusal_of(model.name, model.estimate, verdict)
    if not model.is_lead and not isinstance(verdict, Fits):
        if not undecided:
            replication.give_up(state, model, now)
        return True
    if refusal is not None and isinstance(verdict, Insufficient):
        worker_events.memory_insufficient(state, model, refusal, now)
    elif refusal is not None:
        release_if_checked(state, model)
        model_changes.stop_keeping(model)
        answers.refuse_unserved(state, model, refusal)
    elif not isinstance(verdict, Fits) and not _may_displace(model, now):
        _refuse_failing(state, model, now)
    else:
        return False
    return True


def _lacks_memory(verdict: Verdict) -> bool:
    """Return whether only memory is missing."""
    if isinstance(verdict, Evict):
        return set(verdict.reasons) == {EvictionReason.MEMORY}
    return isinstance(verdict, Wait) and verdict.memory


def _requested_by(model: ScheduledModel) -> str:
    """Return what a model is loaded for: the id of the request that waits longest, or ``load``."""
    first = min(model.queue, key=lambda waiting: waiting.order, default=None)
    return first.request.label if first is not None and first.order == model.order else "load"


def _model_ahead(request: LoadRequest, context: int, now: float) -> LoadedModel:
    """Return a model that is about to be loaded as later ones see it: as already loaded, with all of its memory to come."""
    name, model_type, estimate, npu, groups = request
    memory = ModelMemory(estimate.need(context) if context else fitting.least_need(estimate))
    return LoadedModel(name, model_type, now, busy=True, movable=False, memory=memory, npu=npu, groups=groups)


def _loaded_workers(state: SchedulerState) -> Iterable[tuple[ScheduledWorker, ScheduledModel]]:
    """Yield the workers with a loaded model, except those whose model runs elsewhere."""
    for worker in state.workers.values():
        model = worker.model
        if model is not None and worker.counts_as_loaded and not (model.spec and model.spec.elsewhere):
            yield worker, model


def _loaded_model(model: ScheduledModel, worker: ScheduledWorker, claims: dict[str, EvictionClaim]) -> LoadedModel:
    return LoadedModel(
        model.key,
        model.type,
        model.last_use,
        busy=bool(model.grants),
        pinned=model.pinned,
        movable=worker.serves,
        leaving=worker.state is WorkerState.LEAVING or model.key in claims,
        draining=worker.state is WorkerState.DRAINING,
        memory=worker.memory,
        npu=model.spec.npu if model.spec else "",
        groups=model.policy.groups,
    )


def _may_displace(model: ScheduledModel, now: float) -> bool:
    """Return whether others may be evicted for it: something waits for it, and it is not known to fail."""
    if model.order is None:
        return False
    return not model.backoff.recently_failed(now) or any(not each.repeated for each in model.loaders)


def refusal_of(model: str, estimate: MemoryEstimate, verdict: Verdict) -> Failure | None:
    """Return why a model cannot be loaded; None if it can."""
    if isinstance(verdict, Insufficient):
        return fitting.refusal(model, estimate, verdict.shortfall, RETRY_S)
    if not isinstance(verdict, Blocked):
        return None
    figures = f" ({verdict.shortfall.figures})" if verdict.shortfall is not None else ""
    reason = (
        f"Model {model} cannot be loaded {_OBSTACLES[verdict.reason]}{figures}, and only pinned models could make"
        " way; unpin or unload one of them"
    )
    pins = dict.fromkeys(map(model_name, verdict.pins))
    # Their names are for administrators: the key of the request may not use these models.
    return Failure(Code.ALL_PINNED, reason, model=model, detail=f"pinned: {', '.join(pins)}")


def models_as_seen_by(
    name: str, state: SchedulerState, candidates: Iterable[ScheduledModel], now: float
) -> list[LoadedModel]:
    """Return what is loaded, and what is about to be, as a load of the named model would see it: its present engine leaves."""
    loaded = [_loaded_model(model, worker, {}) for worker, model in _loaded_workers(state)]
    ahead = [
        _model_ahead(LoadRequest(each.key, each.type, each.estimate, each.spec.npu, each.policy.groups), 0, now)
        for each in candidates
        if each.spec is not None and not each.spec.elsewhere and each.name != name
    ]
    return [*(each._replace(leaving=each.leaving or model_name(each.model) == name) for each in loaded), *ahead]


def _refuse_failing(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """It died or failed while others work well, so it displaces no other model."""
    release_if_checked(state, model)
    model_changes.stop_keeping(model)
    if not model.replica_set.has_another(model):
        model_changes.drop_requested_options(model)
    known = model.backoff.failure
    if known is None:
        return
    died = known.code is Code.BREAKER_OPEN
    what = "lost its engine too often" if died else "could not be loaded last time"
    reason = f"Model {model.name} {what}, so it displaces no other model until it is loaded explicitly: {known.message}"
    pause = max(state.limits.restarts.first, model.backoff.forgiven_in(now))
    code = Code.BREAKER_OPEN if died else Code.BACKING_OFF
    failure = Failure(code, reason, model=model.name, retry_after=pause, detail=known.detail)
    answers.refuse_unserved(state, model, failure)


def release_if_checked(state: SchedulerState, model: ScheduledModel) -> None:
    """Make a worker that has checked a model a spare again. A check in progress goes on."""
    if model.state is ModelState.CHECKED:
        model_changes.release_worker(state, model)
