"""Which models get a worker and are loaded now, which are evicted for them, and which are refused. Pure.

A part of :mod:`supervisor.scheduler.reconcile`; :mod:`supervisor.scheduler.eviction` decides which models must leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.worker_states import WorkerState
from supervisor.scheduler import model_changes
from supervisor.scheduler.eviction import (
    Blocked,
    Capacity,
    Evict,
    EvictionReason,
    Fits,
    LoadedModel,
    LoadRequest,
    decide_eviction,
    models_over_limits,
)
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.queue import answers
from supervisor.scheduler.scheduled_model import ScheduledModel, ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_events import EVICTED

LAST_ORDER: Final = 1 << 62
"""After every request."""
_OBSTACLES: Final = {
    EvictionReason.NPU: "beside another model on the NPU",
    EvictionReason.GROUP: "beside others because of its group or theirs",
    EvictionReason.LIMIT: "beyond max_loaded_models",
}
"""Why a pinned model would have to be evicted, in words."""


class EvictionClaim(NamedTuple):
    """A model is to be evicted for a request of this order. ``sure``: the model to be loaded has been checked.

    Order 0: not for a request, but because the settings do not let it stay beside others.
    """

    order: int
    sure: bool
    reason: EvictionReason

    @property
    def why(self) -> str:
        """The reason in words, for the log."""
        return EVICTED if self.order else "the settings no longer allow it beside others"


def models_to_load(models: Iterable[ScheduledModel]) -> list[ScheduledModel]:
    """Return the models that are to be loaded and have no engine, in the order in which they were requested."""
    candidates = [model for model in models if model.state in TO_BE_LOADED and model.demanded]
    return sorted(candidates, key=lambda model: model.order if model.order is not None else LAST_ORDER)


def assign_workers(state: SchedulerState, candidates: list[ScheduledModel], now: float) -> dict[str, EvictionClaim]:
    """Assign workers to the models that must be loaded, load those that fit, and return the models to evict."""
    spares = [worker for worker in state.workers.values() if worker.state is WorkerState.SPARE] if candidates else []
    capacity = Capacity(state.limits.models, state.memory, state.policies.groups)
    claims = {} if state.closing else _claims_of_settings(state, capacity)
    ahead: list[LoadedModel] = []
    for model in candidates:
        worker, spec = model.worker, model.spec
        if spec is None:
            continue
        memory = worker.memory if worker else model.memory
        loaded_models = [*(_loaded_model(other, at, claims) for at, other in _loaded_workers(state)), *ahead]
        request = LoadRequest(model.name, model.type, memory, spec.npu, model.policy.groups)
        verdict = decide_eviction(request, loaded_models, capacity)
        if isinstance(verdict, Blocked):
            _refuse_all_pinned(state, model, verdict)
            continue
        if not isinstance(verdict, Fits) and not _may_displace(model, now):
            _refuse_failing(state, model, now)
            continue
        ahead.append(_model_ahead(request, now))
        if isinstance(verdict, Evict):
            sure = model.state is ModelState.CHECKED
            for evicted, reason in zip(verdict.models, verdict.reasons, strict=True):
                claims[evicted] = EvictionClaim(model.order or 0, sure, reason)
        if worker is None and spares:
            model_changes.begin_check(state, model, spec, spares.pop())
        elif worker is not None and model.state is ModelState.CHECKED and isinstance(verdict, Fits):
            model_changes.start_engine(state, model, spec, worker)
    return claims


def _claims_of_settings(state: SchedulerState, capacity: Capacity) -> dict[str, EvictionClaim]:
    """Return claims on models that changed settings do not let stay beside others."""
    loaded = list(_loaded_workers(state))
    if not capacity.groups and len(loaded) <= capacity.max_loaded:
        return {}
    loaded_models = [_loaded_model(model, worker, {}) for worker, model in loaded]
    over = models_over_limits(loaded_models, capacity)
    return {name: EvictionClaim(0, sure=True, reason=reason) for name, reason in over.items()}


def _model_ahead(request: LoadRequest, now: float) -> LoadedModel:
    """Return a model that is about to be loaded as later ones see it: as already loaded."""
    name, model_type, memory, npu, groups = request
    return LoadedModel(name, model_type, now, busy=True, movable=False, memory=memory, npu=npu, groups=groups)


def _loaded_workers(state: SchedulerState) -> Iterable[tuple[ScheduledWorker, ScheduledModel]]:
    for worker in state.workers.values():
        if worker.model is not None and worker.counts_as_loaded:
            yield worker, worker.model


def _loaded_model(model: ScheduledModel, worker: ScheduledWorker, claims: dict[str, EvictionClaim]) -> LoadedModel:
    return LoadedModel(
        model.name,
        model.type,
        model.last_use,
        busy=bool(model.grants),
        pinned=model.pinned,
        movable=worker.serves,
        leaving=worker.state is WorkerState.LEAVING or model.name in claims,
        draining=worker.state is WorkerState.DRAINING,
        memory=worker.memory,
        npu=model.spec.npu if model.spec else "",
        groups=model.policy.groups,
    )


def _may_displace(model: ScheduledModel, now: float) -> bool:
    """Return whether others may be evicted for it: something waits for it, and it is not known to fail."""
    return model.order is not None and (bool(model.loaders) or not model.backoff.recently_failed(now))


def _refuse_all_pinned(state: SchedulerState, model: ScheduledModel, verdict: Blocked) -> None:
    release_if_checked(state, model)
    model_changes.stop_keeping(model)
    reason = (
        f"Model {model.name} cannot be loaded {_OBSTACLES[verdict.reason]}, and only pinned models could make way;"
        " unpin or unload one of them"
    )
    # Their names are for administrators: the key of the request may not use these models.
    pinned = f"pinned: {', '.join(verdict.pins)}"
    answers.refuse_waiting(state, model, Failure(Code.ALL_PINNED, reason, model=model.name, detail=pinned))


def _refuse_failing(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """It died or failed while others work well, so it displaces no other model."""
    release_if_checked(state, model)
    model_changes.stop_keeping(model)
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
    answers.refuse_waiting(state, model, failure)


def release_if_checked(state: SchedulerState, model: ScheduledModel) -> None:
    """Make a worker that has checked a model a spare again. A check in progress goes on."""
    if model.state is ModelState.CHECKED:
        model_changes.release_worker(state, model)
