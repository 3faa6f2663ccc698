"""What is reported of the machines of a server, and what drains of single ones do."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from protocol.failures import Code, LemonbusError
from protocol.messages.node_reports import DrainNode, ListNodes, NodeReport, NodesReport, NodeState
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import HEAD, NodeFacts
from supervisor.handlers.nodes import NodeCalls, NodeReports
from supervisor.persistence.server_record import ServerRecord
from supervisor.scheduler.view_values import WorkerView

MEMORY = [Capacity(HOST, 64, 8)]


class NodesHarness:
    """A server whose nodes and workers a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.others: list[NodeReport] = []
        self.workers: list[WorkerView] = []
        self.record = ServerRecord(lambda: self.now)
        self.scheduler, self.decisions, self.answers = Mock(), Mock(), Mock()
        view: Any = Mock(workers=lambda: self.workers)
        view.worker = lambda name: next((each for each in self.workers if each.worker == name), None)
        processes: Any = Mock(server_age=lambda: 500.0)
        facts = NodeFacts(HEAD, cpus=8)
        others: Any = Mock(reports=lambda: self.others, has_nodes=lambda: bool(self.others))
        self.reports = NodeReports(lambda: facts, lambda: MEMORY, processes, view, self.record, others)
        calls = NodeCalls(self.reports, self.scheduler, self.decisions, self.record, self.answers)
        self._handlers = calls.handlers()

    def join(self, name: str, state: NodeState = NodeState.READY, reason: str = "") -> None:
        self.others.append(NodeReport(NodeFacts(name), state, 60.0, reason=reason))

    def has(self, worker: str, model: str, node: str = HEAD) -> None:
        self.workers.append(WorkerView(worker, model, None, False, node))

    def drain(self, name: str, *, drained: bool = True) -> NodeReport:
        self._handlers[DrainNode]("g1", DrainNode(7, name, drained), b"")
        _, number, report = self.answers.answer.call_args.args
        assert number == 7
        assert isinstance(report, NodeReport)
        return report

    def listed(self) -> dict[str, NodeReport]:
        self._handlers[ListNodes]("g1", ListNodes(3), b"")
        _, _, report = self.answers.answer.call_args.args
        assert isinstance(report, NodesReport)
        return {each.facts.name: each for each in report.nodes}


@pytest.fixture
def harness() -> NodesHarness:
    return NodesHarness()


def test_a_server_on_one_machine_has_the_head_and_nothing_names_it(harness: NodesHarness) -> None:
    harness.has("w1", "a")
    assert harness.listed() == {HEAD: NodeReport(NodeFacts(HEAD, cpus=8), NodeState.READY, 500.0, MEMORY, ["a"], 1)}
    assert (harness.reports.several(), harness.reports.node_of("w1"), harness.reports.problems()) == ([], "", [])


def test_each_node_has_its_models_and_workers(harness: NodesHarness) -> None:
    harness.join("gpu2")
    for worker, model, node in (("w1", "b", "gpu2"), ("w2", "a", "gpu2"), ("w3", "", "gpu2"), ("w4", "c", HEAD)):
        harness.has(worker, model, node)
    assert list(harness.listed()) == [HEAD, "gpu2"]
    assert [(each.models, each.workers) for each in harness.reports.several()] == [(["c"], 1), (["a", "b"], 3)]
    assert [harness.reports.node_of(worker) for worker in ("w1", "w4", "w5", "")] == ["gpu2", HEAD, "", ""]


def test_a_drain_is_told_to_the_scheduler_once_and_ends_when_no_model_is_left(harness: NodesHarness) -> None:
    harness.join("gpu2")
    harness.has("w1", "a", "gpu2")
    drained = harness.drain("gpu2")
    assert (drained.state, drained.age, drained.models, drained.drained) == (NodeState.DRAINING, 0.0, ["a"], True)
    harness.now += 5.0
    assert harness.drain("gpu2").age == 5.0
    harness.scheduler.node_drains.assert_called_once_with("gpu2", True)
    harness.decisions.reconcile.assert_called_once_with()
    harness.workers.clear()
    assert harness.listed()["gpu2"].state is NodeState.DRAINED
    undrained = harness.drain("gpu2", drained=False)
    assert (undrained.state, undrained.drained) == (NodeState.READY, False)
    harness.scheduler.node_drains.assert_called_with("gpu2", False)
    assert harness.record.drained_nodes == {}


def test_a_drained_node_stays_so_while_it_is_not_in_the_server(harness: NodesHarness) -> None:
    harness.join("gpu2")
    harness.drain("gpu2")
    harness.others.clear()
    gone = harness.listed()["gpu2"]
    assert (gone.state, gone.drained) == (NodeState.LOST, True)
    assert harness.reports.problems() == [], "an operator expects it"
    assert harness.drain("gpu2", drained=False).drained is False
    assert list(harness.listed()) == [HEAD]


@pytest.mark.parametrize("state", [NodeState.LOST, NodeState.UNREACHABLE])
def test_a_node_that_does_not_answer_is_shown_as_that_whether_it_is_drained_or_not(
    harness: NodesHarness, state: NodeState
) -> None:
    harness.join("gpu2", state)
    missing = ["node gpu2 is not reachable; the others serve without it"] if state is NodeState.LOST else []
    assert harness.reports.problems() == missing
    assert harness.drain("gpu2").state is state


def test_the_head_can_be_drained_if_there_is_another_node(harness: NodesHarness) -> None:
    with pytest.raises(LemonbusError) as refused:
        harness.drain(HEAD)
    assert refused.value.failure.code is Code.CONFLICT
    assert harness.drain(HEAD, drained=False).drained is False
    harness.join("gpu2")
    assert harness.drain(HEAD).state is NodeState.DRAINED


def test_an_unknown_node_is_refused_with_the_names_of_those_that_there_are(harness: NodesHarness) -> None:
    harness.join("gpu2")
    for drained in (True, False):
        with pytest.raises(LemonbusError) as refused:
            harness.drain("gpu\n3", drained=drained)
        assert refused.value.failure.code is Code.NOT_FOUND
        assert refused.value.failure.message.endswith("the nodes are gpu2, head")
    harness.scheduler.node_drains.assert_not_called()


def test_a_node_whose_agent_is_about_to_end_drains_whatever_an_operator_says(harness: NodesHarness) -> None:
    harness.join("gpu2", reason="its agent was told to end")
    harness.has("w1", "a", "gpu2")
    shown = harness.listed()["gpu2"]
    assert (shown.state, shown.age, shown.drained, shown.reason) == (
        NodeState.DRAINING,
        60.0,
        False,
        "its agent was told to end",
    )
    harness.drain("gpu2")
    harness.now += 5.0
    assert harness.listed()["gpu2"].age == 5.0
    assert harness.drain("gpu2", drained=False).state is NodeState.DRAINING
    harness.scheduler.node_drains.assert_called_with("gpu2", True)
    assert harness.record.drained_nodes == {}, "the next agent of this name gets models"
