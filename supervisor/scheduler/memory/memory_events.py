"""Events about memory: it was read, or an engine that held some is gone. Pure.

The log line of an eviction is written when what it has freed is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.models.memory import Capacity
from protocol.worker_states import WorkerState
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.memory.fitting import AvailableMemory
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import Eviction, ScheduledWorker
from supervisor.scheduler.state import EndedEviction, SchedulerState


def memory_read(
    state: SchedulerState, capacities: Sequence[Capacity], held: Mapping[str, Mapping[str, int]], now: float
) -> None:
    """The memory of this machine was read. ``held``: worker → bytes that its engine holds, by place."""
    for worker in state.workers.values():
        # A process that ends shows no memory any more, some time before the kernel has it back.
        former = worker.held if worker.state is WorkerState.LEAVING else {}
        worker.held = {**former, **held.get(worker.id, {})}
    engines = [worker.memory.used for worker in state.workers.values() if worker.counts_as_loaded]
    state.memory.read(capacities, engines, now)
    for ended in state.ended_evictions:
        _log(state, ended)
    state.ended_evictions.clear()


def wants_memory(state: SchedulerState, now: float) -> bool:
    """Return whether the memory must be read before the next decision."""
    waits = any(model.state is ModelState.CHECKED for model in state.models.values()) or any(
        plan.estimate is not None for plan in state.plans
    )
    return bool(state.ended_evictions) or (waits and state.memory.outdated(now))


def available_memory(state: SchedulerState, now: float) -> AvailableMemory:
    """Return the memory for models, as it was read last."""
    return state.memory.available(state.limits.memory_reserve, state.limits.device_memory_reserve, now)


def engine_gone(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker, now: float) -> None:
    """A worker with a model is gone, and its engine with it."""
    state.memory.engine_gone(worker.memory.used, now)
    if worker.eviction is not None:
        state.ended_evictions.append(EndedEviction(model.name, worker.eviction))


def eviction_fields(model: str, eviction: Eviction) -> dict[str, Any]:
    """Return what the log says of an eviction from its beginning on: for which other model, why, and what was free before."""
    return {
        "model": model,
        "for_model": eviction.model,
        "for_request": eviction.request,
        "reason": eviction.reason,
        "idle_s": None if eviction.idle_s is None else round(eviction.idle_s, 3),
        "free_before": {place: each.free for place, each in eviction.free.items()},
    }


def _log(state: SchedulerState, ended: EndedEviction) -> None:
    """Tell that a model was evicted, and what that has freed, as it was measured."""
    fields = eviction_fields(ended.model, ended.eviction)
    before = fields["free_before"]
    after = {place: each.free for place, each in state.memory.capacities.items()}
    freed = {place: free - before[place] for place, free in after.items() if place in before}
    state.emit(LogDecision("info", "model evicted", {**fields, "freed": freed, "free_after": after}))
