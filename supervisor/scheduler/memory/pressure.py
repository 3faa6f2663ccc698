"""Memory is nearly used up: the model that has been idle longest is unloaded, before the kernel kills an engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.models.memory import HOST, Capacity
from protocol.worker_states import WorkerState
from supervisor.scheduler import model_changes
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.eviction import EvictionReason
from supervisor.scheduler.memory.memory_events import eviction_fields
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import Eviction
from supervisor.scheduler.state import SchedulerState

AFTER_PRESSURE_S: Final = 300.0
"""After a replica had to leave because memory was nearly used up, this long passes before another one is tried."""


def memory_short(state: SchedulerState, name: str, host: Capacity, figures: Mapping[str, Any], now: float) -> None:
    """A node is short of memory, as ``figures`` say for the log. To be told again as long as that is so.

    One model is unloaded at a time: what the last one held is free when its worker has ended.
    """
    node = state.nodes.get(name)
    if node is None:
        return
    node.memory.short(now)
    node.changed()
    loaded = [(worker, worker.model) for worker in node.workers.values() if worker.model]
    if state.closing or any(worker.state is WorkerState.LEAVING for worker, _ in loaded):
        return
    idle = [(model, worker) for worker, model in loaded if _may_leave(model)]
    if not idle:
        return
    model, worker = min(idle, key=lambda each: each[0].last_use)
    state.count("evictions")
    state.metrics.model_evicted(EvictionReason.PRESSURE)
    idle_s = now - model.last_use
    worker.eviction = Eviction("", "", EvictionReason.PRESSURE, idle_s, {**node.memory.capacities, HOST: host})
    fields = {**eviction_fields(model.name, worker.eviction), "worker": worker.id, **state.on_node(name), **figures}
    state.emit(LogDecision("warning", "unloading a model, memory is nearly used up", fields))
    model_changes.unload(state, model, worker)
    model.replica_set.next_replica_at = now + AFTER_PRESSURE_S


def _may_leave(model: ScheduledModel) -> bool:
    """Return whether a model is ready and idle, nothing keeps it, and an engine on this machine would end."""
    waits = model.queue or model.loaders or model.unfinished or model.pending_spec is not None
    elsewhere = model.spec is not None and model.spec.elsewhere
    return not elsewhere and model.state is ModelState.READY and not model.grants and not waits and not model.pinned
