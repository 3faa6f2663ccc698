"""The idle time (setting ``ttl``) after which a model is unloaded: which one applies, when it ends, and the unload. Pure.

`gateway/api/common/ollama_loading.py` makes an idle time of a request's ``keep_alive``.
"""

from __future__ import annotations

from protocol.times import NEVER_UNLOADED
from supervisor.scheduler import model_changes
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState


def ttl_of(model: ScheduledModel) -> float:
    """Return the idle seconds after which a model is unloaded; infinite if it never is, for example while it is pinned."""
    policy, overrides = model.policy, model.replica_set.overrides
    if policy.pin if overrides.pinned is None else overrides.pinned:
        return NEVER_UNLOADED
    return policy.ttl if overrides.ttl is None else overrides.ttl


def expires_at(model: ScheduledModel) -> float | None:
    """Return when a model is unloaded if nothing uses it until then; None if it never is, or something uses it now."""
    ttl = ttl_of(model)
    if ttl == NEVER_UNLOADED or model.state is not ModelState.READY or model.grants or model.queue or model.loaders:
        return None
    replicas = model.replica_set.replicas
    if len(replicas) > 1 and any(each.grants for each in replicas):
        return None
    return model.replica_set.last_use + ttl


def expired(model: ScheduledModel, now: float) -> bool:
    """Return whether a model has been idle for too long."""
    at = expires_at(model)
    return at is not None and now >= at and model.pending_spec is None


def unload_expired(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """Unload a model that has been idle for too long."""
    worker = model.worker
    if worker is None or not expired(model, now):
        return
    idle_s = round(now - model.replica_set.last_use, 3)
    state.emit(
        LogDecision(
            "info", "model unloaded, it was idle", {"model": model.name, **state.on_node(worker.node), "idle_s": idle_s}
        )
    )
    state.count("expirations")
    state.metrics.model_expired()
    model_changes.unload(state, model, worker)
    for other in model.replica_set.replicas:
        if other.state is not ModelState.READY:  # the ready ones have expired as well
            model_changes.stop_loading(state, other)
