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
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import Eviction, ScheduledWorker
from supervisor.scheduler.scheduler_node import SchedulerNode
from supervisor.scheduler.state import EndedEviction, SchedulerState


def memory_read(
    state: SchedulerState, name: str, capacities: Sequence[Capacity], held: Mapping[str, Mapping[str, int]], now: float
) -> None:
    """The memory of a node was read. ``held``: worker → bytes that its engine holds, by place."""
    node = state.nodes.get(name)
    if node is None:
        return
    node.changed()
    workers = list(node.workers.values())
    for worker in workers:
        # A process that ends shows no memory any more, some time before the kernel has it back.
        former = worker.held if worker.state is WorkerState.LEAVING else {}
        worker.held = {**former, **held.get(worker.id, {})}
    node.memory.read(capacities, [worker.memory.used for worker in workers if worker.counts_as_loaded], now)
    for ended in [ended for ended in state.ended_evictions if ended.node == name]:
        _log(node, state, ended)
        state.ended_evictions.remove(ended)


def available_memory(state: SchedulerState, node: SchedulerNode, now: float) -> AvailableMemory:
    """Return the memory of a node for models, as it was read last."""
    name = node.name if len(state.nodes) > 1 else ""
    return node.memory.available(state.limits.memory_reserve, state.limits.device_memory_reserve, now, name)


def engine_gone(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker, now: float) -> None:
    """A worker with a model is gone, and its engine with it."""
    state.node_of(worker).memory.engine_gone(worker.memory.used, now)
    if worker.eviction is not None:
        state.ended_evictions.append(EndedEviction(model.name, worker.eviction, worker.node))


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


def _log(node: SchedulerNode, state: SchedulerState, ended: EndedEviction) -> None:
    """Tell that a model was evicted, and what that has freed, as it was measured."""
    fields = eviction_fields(ended.model, ended.eviction)
    before = fields["free_before"]
    after = {place: each.free for place, each in node.memory.capacities.items()}
    freed = {place: free - before[place] for place, free in after.items() if place in before}
    state.emit(
        LogDecision(
            "info", "model evicted", {**fields, **state.on_node(node.name), "freed": freed, "free_after": after}
        )
    )
