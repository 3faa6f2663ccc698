"""When a model that waits for its load is compared with other nodes again, and the memory of which nodes is read for that. Pure.

A part of :mod:`supervisor.scheduler.nodes.node_assignment`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.models.recipes import ModelSpec
from supervisor.scheduler.due_queue import NEVER_DUE
from supervisor.scheduler.memory.known_memory import OUTDATED_S
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.nodes.suitability import suitable_nodes
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

READ_S: Final = 2.0
"""A choice needs figures of the nodes that are newer than this."""
READ_TIMEOUT_S: Final = 1.0
"""After this long, a choice goes by the figures that there are."""
COMPARE_S: Final = 0.25
"""A model that waits on a node is compared with other nodes this often: events of a large server come much more often."""


def compares_now(model: ScheduledModel, now: float) -> bool:
    """Return whether a checked model that waits is compared with other nodes again."""
    return now >= model.search.compared_at + COMPARE_S


def are_read(state: SchedulerState, model: ScheduledModel, nodes: Iterable[str], now: float) -> bool:
    """Return whether the memory of nodes was read lately. After a while, a choice goes by older figures."""
    search = model.search
    if not any(state.nodes[name].memory.outdated(now, READ_S) for name in nodes):
        search.waits_since = None
        return True
    search.waits_since = now if search.waits_since is None else search.waits_since
    return now - search.waits_since >= READ_TIMEOUT_S


def look_again_by(state: SchedulerState, model: ScheduledModel, now: float) -> float:
    """Return when a model that waits for its load must be looked at again, even if nothing changes until then."""
    reserved = state.reservations.of(model)
    if reserved is None:
        return NEVER_DUE
    if not reserved.node:
        return now
    memory = state.nodes[reserved.node].memory
    times = [memory.freed_at(now)]
    if model.state is ModelState.CHECKED:
        times.append(now if memory.unknown else memory.read_at + OUTDATED_S)
        if model.search.compares:
            times.append(max(now, model.search.compared_at + COMPARE_S))
    return min(times)


def wants_memory(state: SchedulerState, now: float) -> list[str]:
    """Return the nodes whose memory must be read before the next decision: those at which it will look."""
    wanted = {ended.node for ended in state.ended_evictions}
    models = {model for each in state.index.models.due(now) for model in each.replicas}
    for node in state.index.nodes.due(now):
        models.update(each.model for each in state.reservations.on(node.name))
    for model in models:
        worker = model.worker
        if worker is not None and model.state is ModelState.CHECKED and state.node_of(worker).memory.outdated(now):
            wanted.add(worker.node)
        if len(state.nodes) > 1 and model.demanded and model.spec is not None:
            wanted.update(_nodes_to_read(state, model, model.spec, now))
    for plan in state.plans:
        planned = state.nodes.get(plan.node)
        if plan.estimate is not None and planned is not None and planned.memory.outdated(now):
            wanted.add(plan.node)
    return sorted(wanted)


def _nodes_to_read(state: SchedulerState, model: ScheduledModel, spec: ModelSpec, now: float) -> list[str]:
    """Return the nodes whose memory must be read for the choice of a model's node."""
    if model.worker is not None:
        if model.state is not ModelState.CHECKED or not model.search.compares or not compares_now(model, now):
            return []
    elif model.search.node or model.state not in (ModelState.ABSENT, ModelState.QUEUED):
        return []
    nodes = suitable_nodes(state, model, spec, now)
    return [name for name in nodes if len(nodes) > 1 and state.nodes[name].memory.outdated(now, READ_S)]
