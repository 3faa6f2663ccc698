"""A real agent is told to end, and drains; the supervisor is the test."""

from __future__ import annotations

from protocol.messages.nodes import KillProcess, NodeDrains, NodeLeaves, ProcessEnded, StartProcess
from protocol.messages.peers import Shutdown
from tests.supervisor.node_agent.conftest import BOOT, JOB, AgentsSupervisor
from tests.support.node_agents import NodeUnderTest

TOO_LONG = "its agent was told to end, and after 1 s some requests still ran"


def test_a_told_agent_without_workers_says_so_and_leaves_nothing(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    node.process.terminate()
    assert supervisor.next(NodeDrains).why == "its agent was told to end"
    assert supervisor.next(NodeLeaves).why == "its agent was told to end"
    assert node.wait_end() == 0
    node.assert_nothing_left()
    assert not list(node.runtime.glob("w-*"))


def test_a_told_agent_waits_for_its_last_worker_and_starts_nothing(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, snapshot = supervisor.hello()
    assert snapshot.drains == ""
    for name in ("w1", "w2"):
        supervisor.start_worker(agent, name)
    node.process.terminate()
    supervisor.next(NodeDrains)
    supervisor.send(agent, StartProcess("j1", "job", JOB))
    assert supervisor.next(ProcessEnded) == ProcessEnded("j1", "it could not be started: its agent was told to end")
    supervisor.send(agent, KillProcess("w1"))
    assert supervisor.next(ProcessEnded).name == "w1"
    supervisor.stop()
    supervisor.listen()
    again, snapshot = supervisor.hello()
    assert again == agent
    assert snapshot.drains == "its agent was told to end"
    assert [process.name for process in snapshot.processes] == ["w2"]
    supervisor.send(agent, KillProcess("w2"))
    supervisor.next(NodeLeaves)
    assert node.wait_end() == 0
    node.assert_nothing_left()


def test_an_agent_that_is_told_twice_ends_at_once(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, _ = supervisor.hello()
    supervisor.start_worker(agent, "w1")
    node.process.terminate()
    supervisor.next(NodeDrains)
    node.process.terminate()
    supervisor.next(NodeLeaves)
    assert node.wait_end() == 0
    node.assert_nothing_left()


def test_an_agent_that_drains_ends_after_the_grace_and_when_it_is_refused(supervisor: AgentsSupervisor) -> None:
    supervisor.grace = 1.0
    for refused in (False, True):
        with NodeUnderTest("gpu2", supervisor.membership, BOOT) as node:
            agent, _ = supervisor.hello()
            supervisor.start_worker(agent, "w1")
            node.process.terminate()
            supervisor.next(NodeDrains)
            if refused:
                supervisor.send(agent, Shutdown(0.0, "this node was lost"))
            why = supervisor.next(NodeLeaves).why
            assert why == ("this node was lost" if refused else TOO_LONG)
            assert node.wait_end() == 0
            node.assert_nothing_left()
        supervisor.grace = 60.0


def test_without_a_supervisor_the_workers_of_a_told_agent_end_by_themselves(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, _ = supervisor.hello()
    supervisor.start_worker(agent, "w1")
    supervisor.stop()
    node.process.terminate()
    assert node.wait_end() == 0
    node.assert_nothing_left()
    assert node.logged("node drains") == 1
