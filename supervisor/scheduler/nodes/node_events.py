"""Events of nodes: one joins the server, is to be left by its models, or is gone; and the files of a model have reached one. Pure."""

from __future__ import annotations

from typing import Final

from protocol.failures import Failure
from protocol.messages.engines import LoadProgressed, LoadStage
from protocol.models.nodes import HEAD, NodeFacts
from supervisor.scheduler import worker_deaths
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.nodes.node_search import FailedCopy
from supervisor.scheduler.scheduler_node import LostNode, SchedulerNode
from supervisor.scheduler.state import SchedulerState

MAX_LOST_NODES: Final = 256
_MB: Final = 1_000_000


def node_joined(state: SchedulerState, facts: NodeFacts, now: float) -> None:
    """A node is in the server, or what it says of itself has changed."""
    state.settled = False
    state.lost_nodes.pop(facts.name, None)
    state.nodes_version += 1
    if facts.name in state.nodes:
        state.nodes[facts.name].facts = facts
        state.nodes[facts.name].changed()
    else:
        state.nodes[facts.name] = SchedulerNode(facts, state.limits.restarts, state.index, now)
        if len(state.nodes) == 2:  # where something happens matters from now on
            state.look_at_all()


def node_drains(state: SchedulerState, name: str, draining: bool) -> None:
    """The models of a node are to leave it, or may be loaded there again. One that is lost is not expected back any more."""
    if draining:
        state.lost_nodes.pop(name, None)
    if name not in state.nodes or state.nodes[name].draining == draining:
        return
    state.settled = False
    node = state.nodes[name]
    node.draining = draining
    node.changed()
    for worker in node.workers.values():
        if worker.model is not None:
            worker.model.replica_set.next_replica_at = 0.0
            worker.model.replica_set.changed()


def node_left(state: SchedulerState, name: str, failure: Failure, now: float, *, may_return: bool = False) -> None:
    """A node is gone, with every worker on it. ``may_return``: it was not told to leave, so models wait for it for a while."""
    if name == HEAD or name not in state.nodes:
        return
    state.settled = False
    for worker in list(state.nodes[name].workers.values()):
        worker_deaths.worker_gone(state, worker.id, failure, now)
    node = state.nodes.pop(name)
    if may_return and not node.draining:
        state.lost_nodes[name] = LostNode(node.facts, now)
        while len(state.lost_nodes) > MAX_LOST_NODES:
            del state.lost_nodes[next(iter(state.lost_nodes))]
    state.nodes_version += 1
    state.figures.pop(name, None)
    for reserved in state.reservations.on(name):
        reserved.model.replica_set.changed()
    if len(state.nodes) == 1:
        state.look_at_all()
    state.copies = {copy: progress for copy, progress in state.copies.items() if copy[1] != name}
    state.ended_evictions = [ended for ended in state.ended_evictions if ended.node != name]
    for model in state.models.values():
        if model.search.forget(name):
            model.replica_set.changed()


def files_copied(state: SchedulerState, model_name: str, node: str, done: int, total: int) -> None:
    """This much of the files of a model is on a node, in bytes. Nothing is to be decided."""
    if (model_name, node) in state.copies:
        state.copies[model_name, node] = LoadProgressed(LoadStage.COPYING, done // _MB, -(-total // _MB), "MB")


def files_fetched(state: SchedulerState, model_name: str, node: str, failure: Failure | None, now: float) -> None:
    """The files of a model have reached a node, or not. Then the model is loaded on another one, if any suits it."""
    if (model_name, node) not in state.copies:
        return
    del state.copies[model_name, node]
    state.settled = False
    if failure is None:
        return
    fields = {"model": model_name, "node": node, "reason": failure.message}
    state.emit(LogDecision("warning", "the files of a model did not reach a node", fields))
    copy = FailedCopy(failure, now + state.limits.restarts.most)
    for model in state.models.values():
        if model.name == model_name:
            model.replica_set.changed()
            model.search.failed_copies[node] = copy
