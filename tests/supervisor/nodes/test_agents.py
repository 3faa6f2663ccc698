"""What the supervisor says of nodes: their memory as it was read last, read again when it is shown and old."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import structlog

from protocol.config.settings import Settings
from protocol.messages.engines import EngineReady
from protocol.messages.node_reports import NodeReport, NodeState
from protocol.messages.nodes import (
    AgentSnapshot,
    NodeChanged,
    NodeDrains,
    NodeHardware,
    NodeLeaves,
    NodeRead,
    ProcessEnded,
    ReadNode,
    WorkerFigures,
)
from protocol.messages.peers import Hello, Shutdown
from protocol.messages.system_info import Cpu, MachineInfo
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import NODE_SILENCE_S, NodeFacts
from protocol.wire import envelope
from supervisor.nodes.agents import NodeAgents
from supervisor.nodes.node_placement import NodePlacement
from supervisor.nodes.node_registry import PING_INTERVAL_S, NodeRegistry
from supervisor.persistence.server_record import ServerRecord

AGENT = "a1"
MEMORY = [Capacity(HOST, 64, 8)]


class AgentsHarness:
    """The agents of a server, and what they are sent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[Any] = []
        self.record = ServerRecord()
        bus: Any = SimpleNamespace(send=self._send, forget=lambda _agent: None)
        loop: Any = SimpleNamespace(now=lambda: self.now, call_later=lambda *_: None, every=lambda *_: None)
        self.scheduler = scheduler = Mock()
        self.refreshed: list[str] = []
        self.devices, self.peers = Mock(), Mock()
        self.devices.refresh = lambda node, done: (self.refreshed.append(node), done())
        self.devices.capacities.return_value = []
        scheduler.view.closing = False
        scheduler.view.workers = list
        scheduler.view.memory_changes = lambda _node: 0
        self.placement = NodePlacement(lambda _agent, _message: None, lambda _: "")
        self.agents = NodeAgents(
            settings=Settings(),
            loop=loop,
            bus=bus,
            peers=self.peers,
            placement=self.placement,
            record=self.record,
            scheduler=scheduler,
            decisions=Mock(suspended=False),
            devices=self.devices,
        )

    def _send(self, _peer: str, message: Any, _payload: bytes = b"") -> None:
        self.sent.append(message)

    def hello(self, agent: str = AGENT, drains: str = "") -> None:
        snapshot = AgentSnapshot(NodeFacts("gpu2"), drains=drains)
        self.agents.hello(agent, Hello("agent", agent, 1, "boot", node="gpu2"), envelope.pack_payload(snapshot))

    def look(self, last_seen: float) -> None:
        """Look at the agents after the usual interval. ``last_seen``: when the peers last sent anything."""
        self.now += PING_INTERVAL_S
        self.peers.last_seen.return_value = last_seen
        self.agents._look()

    def orders(self) -> list[int]:
        """Return the numbers of the readings that were ordered."""
        return [message.number for message in self.sent if isinstance(message, ReadNode)]

    def answer(self) -> None:
        self.agents.handlers()[NodeRead](AGENT, NodeRead(self.orders()[-1], MEMORY), b"")

    def report(self) -> NodeReport:
        (shown,) = self.agents.reports()
        return shown


@pytest.fixture
def harness() -> AgentsHarness:
    made = AgentsHarness()
    assert not made.agents.has_nodes()
    made.hello()
    assert made.agents.has_nodes()
    return made


def test_what_is_shown_of_the_memory_is_read_again_when_it_is_old(harness: AgentsHarness) -> None:
    assert (harness.report().memory, harness.orders()) == ([], [1])
    harness.report()
    assert harness.orders() == [1], "the answer is awaited"
    harness.answer()
    harness.now += 1.5
    assert harness.report().memory == [Capacity(HOST, 64, 8, age=1.5)]
    assert harness.orders() == [1]
    harness.now += 1.0
    assert harness.report().memory == [Capacity(HOST, 64, 8, age=2.5)]
    assert harness.orders() == [1, 2]


def test_what_an_engine_holds_on_devices_is_known_before_its_processes_were_read(harness: AgentsHarness) -> None:
    harness.report()
    harness.answer()
    engines = {"w1": EngineReady(1, 1, 7, "http://127.0.0.1:1", 0.0), "w2": None}
    harness.scheduler.view.engine_of = engines.__getitem__
    harness.devices.on_devices = lambda node, pids: {node: sorted(pids)}
    assert harness.agents.memory.held_on_devices("w2", "gpu2") == {"gpu2": []}
    assert harness.orders() == [1], "it has no engine"
    harness.agents._placement.start("w1", "worker", "workers", lambda _why: None, node="gpu2")
    for _ in range(2):
        assert harness.agents.memory.held_on_devices("w1", "gpu2") == {"gpu2": [7]}
    assert harness.orders() == [1, 2]
    figures = {"w1": WorkerFigures(5, {5: 1, 7: 1, 8: 1})}
    harness.agents.handlers()[NodeRead](AGENT, NodeRead(2, MEMORY, figures), b"")
    assert harness.agents.memory.held_on_devices("w1", "gpu2") == {"gpu2": [5, 7, 8]}
    assert harness.orders() == [1, 2]


def test_a_reading_whose_answer_was_lost_with_the_connection_is_not_awaited_for_ever(harness: AgentsHarness) -> None:
    harness.report()
    harness.hello()
    harness.report()
    assert harness.orders() == [1, 2]
    harness.agents.handlers()[NodeRead](AGENT, NodeRead(1, [Capacity(HOST, 1, 1)]), b"")
    harness.answer()
    assert harness.report().memory == MEMORY


def test_a_lost_node_is_shown_without_its_memory(harness: AgentsHarness) -> None:
    harness.report()
    harness.answer()
    harness.agents.unread(AGENT)
    harness.now += 5.0
    lost = harness.report()
    assert (lost.state, lost.age, lost.memory) == (NodeState.LOST, 5.0, [])
    assert len(harness.orders()) == 1


def test_the_devices_of_a_node_are_part_of_its_memory(harness: AgentsHarness) -> None:
    card = Capacity("0000:03:00.0", 24, 20)
    harness.devices.capacities.return_value = [card]
    workers = {"w1": WorkerFigures(7, {7: 1, 8: 5}, {HOST: 5})}
    held = {"w1": {card.place: 3, HOST: 5}}
    harness.devices.held = lambda node, figures: held if (node, figures) == ("gpu2", workers) else {}
    harness.agents.memory.read("gpu2")
    assert harness.refreshed == ["gpu2"], "before the agent is asked"
    harness.agents.handlers()[NodeRead](AGENT, NodeRead(harness.orders()[-1], MEMORY, workers), b"")
    assert harness.scheduler.memory_read.call_args.args == ("gpu2", [*MEMORY, card], held, 100.0)
    assert [each.place for each in harness.report().memory] == [HOST, card.place]


def test_the_devices_of_a_node_that_has_left_while_they_were_read_are_not_asked_for(harness: AgentsHarness) -> None:
    waiting: list[Any] = []
    left: list[str] = []
    harness.report()
    harness.answer()
    harness.devices.refresh, harness.agents.on_left = lambda _node, done: waiting.append(done), left.append
    asked = harness.orders()
    harness.agents.memory.read("gpu2")
    harness.agents.unread(AGENT)
    waiting.pop()()
    assert harness.orders() == asked
    assert left == ["gpu2"]


def test_what_a_node_says_of_its_hardware_is_passed_on(harness: AgentsHarness) -> None:
    hardware = NodeHardware(MachineInfo("System", 1, Cpu("Cpu", 1, 1, "x86_64")), ["amdgpu"])
    joined: list[NodeHardware | None] = []
    harness.agents.on_joined = lambda node: joined.append(node.hardware)
    harness.agents.handlers()[NodeChanged](AGENT, NodeChanged(NodeFacts("gpu2"), hardware), b"")
    harness.agents.handlers()[NodeChanged](AGENT, NodeChanged(NodeFacts("gpu2", cpus=3)), b"")
    assert joined == [hardware, hardware]


def test_the_end_of_a_process_is_taken_from_the_agent_of_its_node_alone(harness: AgentsHarness) -> None:
    ends: list[str] = []
    harness.placement.start("w1", "worker", "workers", ends.append, node="gpu2")
    for agent in ("a-unknown", AGENT):
        assert not ends
        harness.agents.handlers()[ProcessEnded](agent, ProcessEnded("w1", "SIGKILL"), b"")
    assert ends == ["SIGKILL"]


@pytest.mark.parametrize(
    ("hello", "snapshot", "refused", "why"),
    [
        ({"version": 1}, "gpu3", True, "version 1 of the protocol"),
        ({"node": "gpu4"}, "gpu3", False, "its Hello names node gpu4"),
        ({"node": "gpu2"}, "gpu2", False, "has another agent"),
    ],
    ids=["version", "two names", "second agent"],
)
def test_an_agent_that_is_refused_again_and_again_has_few_lines_in_the_log(
    harness: AgentsHarness,
    hello: dict[str, Any],
    snapshot: str,
    refused: bool,
    why: str,
) -> None:
    message = Hello(**{"role": "agent", "id": "a2", "pid": 2, "boot": "boot", "node": "gpu3", **hello})
    del harness.sent[:]
    with structlog.testing.capture_logs() as lines:
        for _ in range(20):
            harness.agents.hello("a2", message, envelope.pack_payload(AgentSnapshot(NodeFacts(snapshot))))
    answers = [each for each in harness.sent if isinstance(each, Shutdown)]
    assert [(why in each.reason, each.refused) for each in answers] == [(True, refused)] * 20
    refusals = [each for each in lines if each["event"] == "node agent refused"]
    assert len(refusals) == 5, "the first, the second, the fourth …"


def test_an_agent_that_is_about_to_end_drains_its_node_and_the_next_one_does_not(harness: AgentsHarness) -> None:
    harness.now += 10.0
    harness.agents.handlers()[NodeDrains](AGENT, NodeDrains("its agent was told to end"), b"")
    harness.scheduler.node_drains.assert_called_with("gpu2", True)
    harness.now += 4.0
    assert (harness.report().reason, harness.report().age) == ("its agent was told to end", 4.0)
    harness.hello(drains="its agent was told to end")
    harness.scheduler.node_drains.assert_called_with("gpu2", True)
    assert harness.report().age == 4.0, "its connection has been made again"
    harness.agents.handlers()[NodeLeaves](AGENT, NodeLeaves("its agent was told to end"), b"")
    assert harness.agents.reports() == [], "it is not missed"
    harness.hello("a2")
    harness.scheduler.node_drains.assert_called_with("gpu2", False)
    assert harness.report().reason == ""


def test_the_next_supervisor_learns_from_the_agent_that_its_node_drains() -> None:
    harness = AgentsHarness()
    harness.hello(drains="its agent was told to end")
    harness.scheduler.node_drains.assert_called_with("gpu2", True)
    assert harness.report().reason == "its agent was told to end"


def test_a_drain_by_an_operator_outlives_the_agent(harness: AgentsHarness) -> None:
    harness.record.set_node_drained("gpu2", True)
    harness.agents.handlers()[NodeDrains](AGENT, NodeDrains("its agent was told to end"), b"")
    harness.agents.handlers()[NodeLeaves](AGENT, NodeLeaves("its agent was told to end"), b"")
    harness.hello("a2")
    harness.scheduler.node_drains.assert_called_with("gpu2", True)
    assert harness.report().reason == ""


def test_a_supervisor_that_takes_over_says_which_nodes_have_reported() -> None:
    harness = AgentsHarness()
    harness.record.set_agents({"gpu2": AGENT, "gpu3": "a3"})
    assert harness.agents.expect() == {AGENT: NODE_SILENCE_S, "a3": NODE_SILENCE_S}
    harness.hello()
    assert harness.agents.take_over() == ["gpu2"]
    assert {node.facts.name: node.state for node in harness.agents.reports()} == {
        "gpu2": NodeState.READY,
        "gpu3": NodeState.LOST,
    }


@pytest.mark.parametrize(("since", "seconds"), [(0.0, 1.5), (1.0, 1.0), (60.0, 1.0)])
def test_the_next_supervisor_waits_for_less_for_an_agent_that_does_not_answer(since: float, seconds: float) -> None:
    harness, now = AgentsHarness(), [0.0]
    harness.record = harness.agents._record = ServerRecord(lambda: now[0])
    harness.hello()
    harness.look(harness.now)
    assert harness.record.silent_nodes == {}
    for _ in range(6):
        harness.look(last_seen=100.0)
    assert harness.record.silent_nodes == {"gpu2": pytest.approx(1.25)}
    now[0] = 0.25 + since
    harness.agents._registry = NodeRegistry()
    assert harness.agents.expect() == {AGENT: pytest.approx(seconds)}


def test_an_agent_that_answers_again_or_is_lost_is_not_silent_for_the_next_supervisor() -> None:
    harness = AgentsHarness()
    for answers in (True, False):
        harness.hello()
        harness.look(harness.now)
        began = harness.now
        while not harness.record.silent_nodes:
            harness.look(began)
        while harness.record.silent_nodes:
            harness.look(harness.now if answers else began)
        assert bool(harness.record.agents) is answers
