"""Which models get a worker and are loaded now, which are evicted for them, and which are refused. Pure.

A part of :mod:`supervisor.scheduler.reconcile`; :mod:`supervisor.scheduler.eviction` decides which models must leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.scheduler import known_models, model_changes, worker_events
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    EvictionReason,
    Fits,
    Insufficient,
    LoadRequest,
    Verdict,
    Wait,
)
from supervisor.scheduler.loads.over_limits import models_over_limits
from supervisor.scheduler.memory import fitting
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.nodes.node_assignment import NodeAssignment
from supervisor.scheduler.nodes.node_choice import Effort, Offer, nearest, offer_of
from supervisor.scheduler.nodes.node_views import NodeViews, loaded_model, loaded_workers, request_of
from supervisor.scheduler.queue import answers
from supervisor.scheduler.replicas import replication
from supervisor.scheduler.replicas.replica_set import model_name
from supervisor.scheduler.scheduled_model import ScheduledModel
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
    candidates.sort(key=lambda model: (model.replica_set.serial, model.number))
    return sorted(candidates, key=lambda model: model.order if model.order is not None else LAST_ORDER)


def claims_of_settings(state: SchedulerState) -> dict[str, EvictionClaim]:
    """Return claims on models that changed settings do not let stay beside others, by key."""
    most, groups = state.limits.models, state.policies.groups
    nodes = state.nodes.keys() if groups else state.index.crowded & state.nodes.keys()
    if state.closing or not nodes:
        return {}
    workers = [worker for name in state.nodes if name in nodes for worker in state.nodes[name].workers.values()]
    over = models_over_limits([loaded_model(model, worker) for worker, model in loaded_workers(workers)], most, groups)
    return {key: EvictionClaim(0, sure=True, reason=reason) for key, reason in over.items()}


def assign_workers(
    state: SchedulerState, candidates: list[ScheduledModel], claims: dict[str, EvictionClaim], now: float
) -> None:
    """Assign workers to the models that must be loaded, load those that fit, and add ``claims`` on those to evict, by key."""
    assignment = _Assignment(state, claims, now)
    for model in candidates:
        if model.spec is not None:
            assignment.assign(model, model.spec)


class _Assignment:
    """The nodes and their spare workers, while one model after the other gets its part of them."""

    def __init__(self, state: SchedulerState, claims: dict[str, EvictionClaim], now: float) -> None:
        self._state, self._claims, self._now = state, claims, now
        self._views = NodeViews(state, claims, now)
        self._nodes = NodeAssignment(state, self._views, now)

    def assign(self, model: ScheduledModel, spec: ModelSpec) -> None:
        """Assign a worker to a model, or load it, or find out what prevents that."""
        node = self._nodes.node_for(model, spec)
        if not node:
            return
        checked = model.state is ModelState.CHECKED
        # Old figures would start, refuse or unload too much. A model that runs elsewhere takes nothing of this machine.
        ready = checked and (spec.elsewhere or not self._state.nodes[node].memory.unknown)
        # What an earlier check found may have changed: only after a check does memory decide.
        request = request_of(
            model, spec, self._state.nodes[node].facts, model.estimate if checked else MemoryEstimate()
        )
        offer = offer_of(self._views.of(node, spec), request, may_displace=model.may_displace(self._now))
        if spec.elsewhere:
            offer = offer._replace(verdict=Fits(), effort=Effort.NONE)
        if ready and len(self._state.nodes) > 1 and offer.effort:
            others = self._nodes.compare(model, spec, offer)
            if others.unknown:
                return
            if others.move_to:
                self._nodes.leave(model, others.move_to)
                self.assign(model, spec)
                return
            offer = nearest([offer, *others.refusals])
        if not ready and isinstance(offer.verdict, Insufficient | Blocked) and offer.verdict.shortfall is not None:
            offer = offer._replace(verdict=Wait(memory=True))
        if ready and offer.effort >= Effort.BUSY_MODELS:
            self._nodes.note_unmet(model, spec, offer.estimate)
        if not _refused(self._state, model, offer, self._now, undecided=checked and not ready):
            self._load(model, spec, request, offer.verdict, ready=ready)

    def _load(
        self, model: ScheduledModel, spec: ModelSpec, request: LoadRequest, verdict: Verdict, *, ready: bool
    ) -> None:
        """Evict what must leave for a model, and let a worker check or load it. ``ready``: whether memory decides."""
        state, worker, node = self._state, model.worker, request.node
        model.lacks_memory = _lacks_memory(verdict)
        context = verdict.context if isinstance(verdict, Fits) else 0
        if not spec.elsewhere:
            estimate = self._nodes.estimate_ahead(model, spec, node)
            self._views.add(request._replace(estimate=estimate), context)
        if isinstance(verdict, Evict):
            for evicted, reason in zip(verdict.models, verdict.reasons, strict=True):
                sure = ready and not (verdict.waits and reason is EvictionReason.MEMORY)
                self._claims[evicted] = EvictionClaim(model.order or 0, sure, reason, model.name, _requested_by(model))
            self._views.leave(verdict.models)
        if worker is None:
            spares = [each for each in state.nodes[node].workers.values() if each.state is WorkerState.SPARE]
            if spares:
                model_changes.begin_check(state, model, spec, spares[-1])
        elif worker is not None and ready and isinstance(verdict, Fits):
            model_changes.choose_context(worker, context)
            model_changes.start_engine(state, model, spec, worker, self._now)
            state.unmet.met(model.key)


def _refused(state: SchedulerState, model: ScheduledModel, offer: Offer, now: float, *, undecided: bool) -> bool:
    """Refuse everything that waits for a model that cannot be loaded, or evicts no others; return whether it was.

    ``undecided``: memory must be read again first. A further replica that does not fit is given up, and refuses nothing.
    """
    verdict = offer.verdict
    refusal = refusal_of(model.name, offer.estimate, verdict)
    if isinstance(verdict, Insufficient) and model.worker is not None and model.worker.device:
        model.replica_set.too_large_for_one = model.spec
        model_changes.release_worker(state, model)  # it is checked again, for all of its devices
        return True
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
    elif not isinstance(verdict, Fits) and not model.may_displace(now):
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


def _refuse_failing(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """It died or failed while others work well, so it displaces no other model."""
    release_if_checked(state, model)
    model_changes.stop_keeping(model)
    if not model.replica_set.has_another(model):
        known_models.drop_requested_options(model)
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
