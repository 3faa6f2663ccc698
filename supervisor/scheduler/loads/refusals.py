"""Why a model that is to be loaded is refused instead: what prevents its load, in words for clients. Pure.

A part of :mod:`supervisor.scheduler.loads.assignment`.
"""

from __future__ import annotations

from typing import Final

from protocol.failures import Code, Failure
from protocol.models.memory import MemoryEstimate
from supervisor.scheduler import known_models, model_changes, worker_events
from supervisor.scheduler.eviction import Blocked, Evict, EvictionReason, Fits, Insufficient, Verdict
from supervisor.scheduler.memory import fitting
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.nodes.node_choice import Offer
from supervisor.scheduler.queue import answers, batches
from supervisor.scheduler.replicas import replication
from supervisor.scheduler.replicas.replica_set import model_name
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

_OBSTACLES: Final = {
    EvictionReason.NPU: "beside another model on the NPU",
    EvictionReason.GROUP: "beside others because of its group or theirs",
    EvictionReason.LIMIT: "beyond max_loaded_models",
    EvictionReason.MEMORY: "beside others because of their memory",
}
"""Why a pinned model would have to be evicted, in words."""
RETRY_S: Final = 30.0
"""When a client may ask again for a model for which other programs leave too little memory."""


def refused(state: SchedulerState, model: ScheduledModel, offer: Offer, now: float, *, undecided: bool) -> bool:
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
    elif isinstance(verdict, Evict) and (failure := batches.refusal_to_evict(state, model, verdict.models, now)):
        release_if_checked(state, model)
        answers.refuse_unserved(state, model, failure)
    else:
        return False
    return True


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
