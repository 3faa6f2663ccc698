"""The machines of the server: what is reported of each, and the calls that list and drain them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from protocol.failures import Code, Failure, printable
from protocol.messages.node_reports import DrainNode, ListNodes, NodeReport, NodesReport, NodeState
from protocol.models.memory import Capacity
from protocol.models.nodes import HEAD, NodeFacts
from protocol.runtime import logs
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.placement import ProcessFigures
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.scheduler import Scheduler
from supervisor.scheduler.view import SchedulerView

log = logs.get_logger()


class ClusterNodes(Protocol):
    """The nodes besides the head."""

    def has_nodes(self) -> bool:
        """Return whether there is any, missing ones included."""

    def reports(self) -> list[NodeReport]:
        """Return all of them by name, without what operators and the scheduler know."""


class NodeReports:
    """What is known of each node now."""

    def __init__(
        self,
        head: Callable[[], NodeFacts],
        memory: Callable[[], list[Capacity]],
        processes: ProcessFigures,
        view: SchedulerView,
        record: ServerRecord,
        others: ClusterNodes | None,
    ) -> None:
        """``head``, ``memory``: of the head. ``others``: the other nodes; None on a server that cannot have any."""
        self._head, self._memory, self._processes = head, memory, processes
        self._view, self._record, self._cluster = view, record, others

    def _has_others(self) -> bool:
        return self._cluster is not None and self._cluster.has_nodes()

    def _others(self) -> list[NodeReport]:
        return self._cluster.reports() if self._cluster is not None else []

    def several(self) -> list[NodeReport]:
        """Return all nodes of a server that has more than one; else none, without a look at anything."""
        if not self._has_others() and not self._record.drained_nodes:
            return []
        nodes = self.all()
        return nodes if len(nodes) > 1 else []

    def all(self) -> list[NodeReport]:
        """Return all nodes, the head first; also those that are drained and not in the server."""
        head = NodeReport(self._head(), NodeState.READY, self._processes.server_age(), self._memory())
        others = {each.facts.name: each for each in self._others()}
        drained = self._record.drained_nodes
        for name in sorted(drained.keys() - others.keys() - {HEAD}):
            others[name] = NodeReport(NodeFacts(name), NodeState.LOST, drained[name])
        models: dict[str, set[str]] = {}
        workers: dict[str, int] = {}
        for worker in self._view.workers():
            workers[worker.node] = workers.get(worker.node, 0) + 1
            if worker.model:
                models.setdefault(worker.node, set()).add(worker.model)
        return [
            _with_use(
                each,
                sorted(models.get(each.facts.name, ())),
                workers.get(each.facts.name, 0),
                drained.get(each.facts.name),
            )
            for each in (head, *others.values())
        ]

    def node_of(self, worker: str) -> str:
        """Return the node of a worker of a server that has more than one; else nothing."""
        known = self._view.worker(worker) if self._has_others() else None
        return known.node if known is not None else ""

    def problems(self) -> list[str]:
        """Return which nodes are missing, as sentences."""
        return [
            f"node {each.facts.name} is not reachable; the others serve without it"
            for each in self._others()
            if each.state is NodeState.LOST and each.facts.name not in self._record.drained_nodes
        ]


def _with_use(node: NodeReport, models: list[str], workers: int, drained: float | None) -> NodeReport:
    """Return what is reported of a node. ``drained``: how many seconds ago it was drained; None: it is not."""
    used = replace(node, models=models, workers=workers, drained=drained is not None)
    if node.state is not NodeState.READY or (drained is None and not node.reason):
        return used
    age = node.age if drained is None else drained
    return replace(used, state=NodeState.DRAINING if models else NodeState.DRAINED, age=age)


class NodeCalls:
    """Lists and drains nodes."""

    def __init__(
        self,
        nodes: NodeReports,
        scheduler: Scheduler,
        decisions: Decisions,
        record: ServerRecord,
        calls: GatewayCalls,
    ) -> None:
        self._nodes, self._scheduler, self._decisions = nodes, scheduler, decisions
        self._record, self._calls = record, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {ListNodes: self._list, DrainNode: self._drain}

    def _list(self, peer: str, call: ListNodes, _payload: bytes) -> None:
        self._calls.answer(peer, call.number, NodesReport(self._nodes.all()))

    def _drain(self, peer: str, call: DrainNode, _payload: bytes) -> None:
        node = self._known(call.node)
        if call.drained and not self._nodes.several():
            reason = "this server has one machine: POST /internal/drain takes it out of service"
            raise Failure(Code.CONFLICT, reason, param="name").raised()
        if node.drained != call.drained:
            log.info("node drained" if call.drained else "node undrained", node=call.node, models=node.models)
            self._record.set_node_drained(call.node, call.drained)
            self._scheduler.node_drains(call.node, call.drained or bool(node.reason))
            self._decisions.reconcile()
        self._calls.answer(peer, call.number, self._known(call.node, undrained=node))

    def _known(self, name: str, undrained: NodeReport | None = None) -> NodeReport:
        """Return a node; one that has left the server is known only as long as it is drained. Raises ``not_found``."""
        nodes = {each.facts.name: each for each in self._nodes.all()}
        if name in nodes:
            return nodes[name]
        if undrained is not None:
            return replace(undrained, drained=False)
        reason = f"there is no node {printable(name)}; the nodes are {', '.join(sorted(nodes))}"
        raise Failure(Code.NOT_FOUND, reason, param="name").raised()
