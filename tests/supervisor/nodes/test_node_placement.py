"""Processes of other nodes: ordered from their agents, and compared with the agents' snapshots."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from protocol.messages.nodes import AgentSnapshot, KillProcess, NodeProcess, ProcessEnded, StartProcess, WorkerFigures
from protocol.models.memory import HOST
from protocol.models.nodes import HEAD, NodeFacts
from protocol.runtime.loop import Loop
from supervisor.nodes.cluster_placement import ClusterPlacement
from supervisor.nodes.node_placement import NodePlacement
from supervisor.processes.placement import LostWithNode, Placement, Survivor

FACTS = NodeFacts("gpu2")
START = StartProcess("w1", "worker", "workers", {"LEMONBUS_FINGERPRINT": "f", "LEMONBUS_PROOF": "proof of w1"})


class NodePlacementHarness:
    """A placement whose agents are the test."""

    def __init__(self, *nodes: str) -> None:
        self.sent: list[tuple[str, msgspec.Struct]] = []
        self.ends: list[tuple[str, str]] = []
        self.placement = NodePlacement(lambda agent, message: self.sent.append((agent, message)), "proof of {}".format)
        for node in nodes or ("gpu2",):
            self.placement.hello(node, f"a-{node}", AgentSnapshot(NodeFacts(node)))

    def start(self, name: str = "w1", node: str = "gpu2") -> None:
        ended = partial(self._ended, name)
        self.placement.start(name, "worker", "workers", ended, {"LEMONBUS_FINGERPRINT": "f"}, node=node)

    def adopt(self, survivor: Survivor) -> None:
        self.placement.adopt(survivor, partial(self._ended, survivor.peer))

    def _ended(self, name: str, why: str) -> None:
        self.ends.append((name, why))

    def hello(self, *processes: str, ended: tuple[ProcessEnded, ...] = ()) -> list[Survivor]:
        """The agent connects again, with these processes."""
        self.sent.clear()
        there = [NodeProcess(name, "worker", 7, "f", welcomed=True) for name in processes]
        return self.placement.hello("gpu2", "a-gpu2", AgentSnapshot(FACTS, there, list(ended)))


def test_the_agent_of_the_node_is_told_to_start_and_to_kill() -> None:
    harness = NodePlacementHarness("gpu1", "gpu2")
    harness.start()
    harness.placement.kill("w1")
    harness.placement.kill("w2")
    assert harness.sent == [("a-gpu2", START), ("a-gpu2", KillProcess("w1"))]
    assert ("w1" in harness.placement, len(harness.placement), harness.placement.node_of("w1")) == (True, 1, "gpu2")
    assert harness.ends == []
    harness.placement.ended("w1", "SIGKILL")
    harness.placement.ended("w1", "SIGKILL")
    assert harness.ends == [("w1", "SIGKILL")]
    assert len(harness.placement) == 0


def test_an_order_that_was_lost_with_the_connection_is_given_again() -> None:
    harness = NodePlacementHarness()
    harness.start()
    assert harness.hello() == []
    assert harness.sent == [("a-gpu2", START)]
    assert harness.hello("w1") == []
    assert harness.sent == []
    assert harness.placement.pid("w1") == 7


def test_a_kill_that_was_lost_is_given_again_and_a_start_that_was_to_be_killed_is_not() -> None:
    harness = NodePlacementHarness()
    harness.start()
    harness.placement.kill("w1")
    harness.hello("w1")
    assert harness.sent == [("a-gpu2", KillProcess("w1"))]
    harness.hello()
    assert (harness.sent, [name for name, _ in harness.ends]) == ([], ["w1"])


def test_an_end_that_was_lost_is_known_from_the_snapshot() -> None:
    harness = NodePlacementHarness()
    harness.start()
    harness.hello(ended=(ProcessEnded("w0", "exit 0"), ProcessEnded("w1", "exit 3")))
    assert (harness.sent, harness.ends) == ([], [("w1", "exit 3")])


def test_what_this_supervisor_does_not_know_is_adopted_or_killed() -> None:
    harness = NodePlacementHarness()
    found = harness.hello("w8", "w9")
    assert found == [Survivor("worker", name, "f", welcomed=True, node="gpu2") for name in ("w8", "w9")]
    harness.adopt(found[0])
    harness.placement.kill_unknown(found[1])
    assert harness.sent == [("a-gpu2", KillProcess("w9"))]
    assert (len(harness.placement), harness.placement.pid("w8")) == (1, 7)
    harness.hello()
    assert [name for name, _ in harness.ends] == ["w8"], "its order is not known"


def test_a_process_that_a_snapshot_names_twice_is_adopted_once() -> None:
    harness = NodePlacementHarness()
    for survivor in harness.hello("w1", "w1"):
        harness.adopt(survivor)
    harness.placement.kill("w1")
    assert harness.sent == [("a-gpu2", KillProcess("w1"))]


def test_a_lost_node_ends_its_processes_and_no_others() -> None:
    harness = NodePlacementHarness("gpu1", "gpu2")
    harness.start("w1", "gpu1")
    harness.start("w2", "gpu2")
    harness.start("w3", "gpu2")
    assert harness.placement.lost("gpu2", "node gpu2 is not reachable") == ["w2", "w3"]
    assert harness.ends == [(name, "node gpu2 is not reachable") for name in ("w2", "w3")]
    assert all(isinstance(why, LostWithNode) for _, why in harness.ends)
    assert ("w1" in harness.placement, harness.placement.has_agent("gpu2")) == (True, False)


def test_one_that_was_given_up_is_not_waited_for_but_its_end_is_still_told() -> None:
    harness = NodePlacementHarness()
    harness.start()
    harness.placement.give_up("w1")
    assert (len(harness.placement), harness.sent[-1]) == (0, ("a-gpu2", KillProcess("w1")))
    harness.placement.ended("w1", "SIGKILL")
    assert harness.ends == [("w1", "SIGKILL")]


def test_figures_are_those_of_the_last_reading() -> None:
    harness = NodePlacementHarness()
    harness.start()
    assert (harness.placement.resident_bytes("w1", 7), harness.placement.held("w1")) == (0, {})
    figures = WorkerFigures(7, {7: 10, 8: 500}, {HOST: 500})
    harness.placement.figures_read("gpu2", {"w1": figures, "w0": figures})
    assert (harness.placement.resident_bytes("w1", 8), harness.placement.held("w1")) == (500, {HOST: 500})
    assert (harness.placement.pid("w1"), harness.placement.held("w0")) == (7, {})


def test_an_agent_says_nothing_about_processes_of_other_nodes() -> None:
    harness = NodePlacementHarness()
    harness.start()
    harness.placement.figures_read("gpu1", {"w1": WorkerFigures(666, {666: 1}, {HOST: 1})})
    harness.placement.ended_on("gpu1", "w1", "SIGKILL")
    assert (harness.placement.held("w1"), harness.ends, "w1" in harness.placement) == ({}, [], True)
    harness.placement.ended_on("gpu2", "w1", "SIGKILL")
    assert harness.ends == [("w1", "SIGKILL")]


class HeadPlacement:
    """Takes note of what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self, name: str, *_: object) -> None:
        self.asked.append(f"start {name}")

    def kill(self, name: str) -> None:
        self.asked.append(f"kill {name}")

    def node_of(self, _: str) -> str:
        return HEAD

    def __len__(self) -> int:
        return 3


@pytest.fixture
def head() -> HeadPlacement:
    return HeadPlacement()


def test_each_question_goes_to_the_placement_that_has_the_process(head: HeadPlacement) -> None:
    harness, loop = NodePlacementHarness(), Loop()
    local: Placement = head  # type: ignore[assignment]
    cluster = ClusterPlacement(loop, local, harness.placement)
    cluster.start("w1", "worker", "workers", lambda _: None, {"LEMONBUS_FINGERPRINT": "f"}, "gpu2")
    cluster.start("w2", "worker", "workers", lambda _: None)
    cluster.kill("w1")
    cluster.kill("w2")
    assert head.asked == ["start w2", "kill w2"]
    assert harness.sent == [("a-gpu2", START), ("a-gpu2", KillProcess("w1"))]
    assert (cluster.node_of("w1"), cluster.node_of("w2"), len(cluster)) == ("gpu2", HEAD, 4)
    ends: list[str] = []
    cluster.start("w3", "worker", "workers", ends.append, None, "gpu9")
    assert ends == [], "the caller is not ready for it yet"
    loop.run_once(0.0)
    assert ends == ["node gpu9 is not reachable"]
    assert isinstance(ends[0], LostWithNode)
    loop.close()
