"""On which nodes a model can be loaded at all, and why not on another one. Pure: it only answers.

What a model demands is compared with what nodes say of themselves when that has changed. What changes more often is looked at only
for the few nodes and models that have trouble.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from protocol.models.nodes import HEAD, NodeNeeds, unsuitable
from protocol.models.recipes import ModelSpec
from supervisor.scheduler import spare_workers
from supervisor.scheduler.nodes.node_search import SuitedNodes
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduler_node import LostNode
from supervisor.scheduler.state import SchedulerState

NODE_RETURN_S: Final = 30.0
"""What waits for a model that only lost nodes suit is refused when the last of them has been lost for this long."""


def suitable_nodes(state: SchedulerState, model: ScheduledModel, spec: ModelSpec, now: float) -> Sequence[str]:
    """Return the nodes where a model can be loaded, whatever is loaded there."""
    if spec.elsewhere or (len(state.nodes) == 1 and spec.needs == NodeNeeds() and not state.nodes[HEAD].draining):
        return [HEAD]
    found = _suited(state, model, spec)
    troubled = state.index.troubled | model.search.failed_copies.keys()
    if troubled:
        found = [name for name in found if name not in troubled or not obstacle(state, model, spec.needs, name, now)]
    if not found and _could_be_installed(state, model, spec, now):
        return [HEAD]
    return found


def suits(state: SchedulerState, model: ScheduledModel, spec: ModelSpec, name: str, now: float) -> bool:
    """Return whether a node is one of these."""
    if spec.elsewhere or name not in state.nodes:
        return name == HEAD
    if len(state.nodes) > 1 and not obstacle(state, model, spec.needs, name, now):
        return True
    return name == HEAD and HEAD in suitable_nodes(state, model, spec, now)


def lost_nodes(state: SchedulerState, spec: ModelSpec) -> list[tuple[str, LostNode]]:
    """Return the lost nodes that could run a model; the one that was lost last is the last."""
    return [(name, node) for name, node in state.lost_nodes.items() if not unsuitable(spec.needs, node.facts)]


def awaited_node(state: SchedulerState, spec: ModelSpec, now: float) -> tuple[str, LostNode] | None:
    """Return the lost node that what waits for a model goes on waiting for, if no present one suits it; None: it waits no longer."""
    lost = lost_nodes(state, spec)
    return lost[-1] if lost and now - lost[-1][1].at < NODE_RETURN_S else None


def _suited(state: SchedulerState, model: ScheduledModel, spec: ModelSpec) -> Sequence[str]:
    """Return the nodes that have what a model demands."""
    search = model.search
    if search.suited is None or search.suited.spec is not spec or search.suited.nodes_version != state.nodes_version:
        names = [name for name, node in state.nodes.items() if not unsuitable(spec.needs, node.facts)]
        search.suited = SuitedNodes(spec, state.nodes_version, names)
    return search.suited.names


def _could_be_installed(state: SchedulerState, model: ScheduledModel, spec: ModelSpec, now: float) -> bool:
    """Return whether the head lacks only a backend: the check of the model there says what could be installed."""
    if not spec.needs.backends or (state.lost_nodes and lost_nodes(state, spec)):
        return False
    return not obstacle(state, model, structs.replace(spec.needs, backends=[]), HEAD, now)


def obstacle(state: SchedulerState, model: ScheduledModel, needs: NodeNeeds, name: str, now: float) -> str:
    """Return why a model cannot be loaded on a node, as a clause about the node; empty if it can."""
    node = state.nodes[name]
    if node.draining:
        return "its models are leaving it"
    if problem := unsuitable(needs, node.facts):
        return problem
    failed = model.search.failed_copies.get(name)
    if failed is not None and failed.until > now:
        return failed.failure.message
    if len(state.nodes) == 1 or (model.worker is not None and model.worker.node == name):
        return ""  # it needs no other worker than the one that it has there
    refusal = spare_workers.refusal_on(node, now)
    return refusal.message if refusal is not None else ""
