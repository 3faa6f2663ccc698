"""Which nodes there are, and what follows from the silence of their agents, on a clock of the test's own."""

from __future__ import annotations

import pytest

from protocol.models.nodes import HEAD, NODE_SILENCE_S, NodeFacts
from protocol.state_table import IllegalTransitionError
from supervisor.nodes.node_registry import MAX_MISSING, MAX_REFUSED, PING_INTERVAL_S, NodeRegistry
from supervisor.nodes.node_states import TRANSITIONS, NodeConnection


class RegistryOnClock:
    """Looks at a registry at the usual intervals. Agents that are not silent are seen just before each look."""

    def __init__(self, *names: str) -> None:
        self.registry = NodeRegistry()
        self.now = 100.0
        self.silent: set[str] = set()
        self.log: list[tuple[str, str]] = []
        self.registry.look(self.now)
        for name in names:
            self.registry.hello(NodeFacts(name), f"a-{name}", self.now)

    def look(self) -> None:
        for node in self.registry.nodes():
            if node.name not in self.silent:
                node.last_seen = self.now
        found = self.registry.look(self.now)
        for what, nodes in found._asdict().items():
            self.log += [(what, node.name) for node in nodes]
        for node in found.lost:
            self.registry.lost(node, self.now)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PING_INTERVAL_S)):
            self.now += PING_INTERVAL_S
            self.look()

    def state(self, name: str) -> NodeConnection | None:
        node = self.registry.get(name)
        return node.state if node is not None else None


def test_every_state_but_the_last_can_be_left_and_reached() -> None:
    reached = {after for steps in TRANSITIONS.values() for after in steps.values()}
    assert reached == set(NodeConnection) - {NodeConnection.JOINING}
    assert [state for state, steps in TRANSITIONS.items() if not steps] == [NodeConnection.GONE]


def test_a_node_joins_with_the_hello_of_its_agent() -> None:
    clock = RegistryOnClock("gpu2", "gpu1")
    assert [node.name for node in clock.registry.nodes()] == ["gpu1", "gpu2"]
    assert clock.state("gpu1") is NodeConnection.READY
    node = clock.registry.of_agent("a-gpu2")
    assert node is not None
    assert node.name == "gpu2"
    assert clock.registry.of_agent("a-other") is None


def test_a_break_shorter_than_the_limit_loses_nothing() -> None:
    clock = RegistryOnClock("gpu1", "gpu2")
    clock.silent.add("gpu2")
    clock.run(NODE_SILENCE_S - 0.1)
    assert clock.log == [("unreachable", "gpu2")]
    assert clock.state("gpu2") is NodeConnection.UNREACHABLE
    clock.silent.clear()
    clock.run(10)
    assert clock.log == [("unreachable", "gpu2"), ("back", "gpu2")]
    assert clock.state("gpu2") is NodeConnection.READY


def test_a_longer_one_loses_the_node_once_and_its_agent_is_refused_from_then_on() -> None:
    clock = RegistryOnClock("gpu1", "gpu2")
    clock.silent.add("gpu2")
    clock.run(NODE_SILENCE_S + 2 * PING_INTERVAL_S)
    clock.run(10)
    assert clock.log == [("unreachable", "gpu2"), ("lost", "gpu2")]
    assert clock.state("gpu2") is None
    assert "counted as lost" in clock.registry.why_refused("gpu2", "a-gpu2", clock.now)
    assert clock.registry.why_refused("gpu2", "a-renewed", clock.now) == ""
    assert clock.registry.hello(NodeFacts("gpu2"), "a-renewed", clock.now).state is NodeConnection.READY


def test_a_supervisor_that_stood_still_learns_nothing_from_silence() -> None:
    clock = RegistryOnClock("gpu1")
    clock.silent.add("gpu1")
    clock.run(1.5)
    clock.now += 60.0
    clock.look()
    clock.run(NODE_SILENCE_S - 0.1)
    assert clock.state("gpu1") is NodeConnection.UNREACHABLE
    clock.run(2 * PING_INTERVAL_S)
    assert clock.state("gpu1") is None


def test_a_second_agent_of_a_living_node_is_refused() -> None:
    clock = RegistryOnClock("gpu1")
    clock.now += 0.5
    assert "another agent, which was seen 0.5 s ago" in clock.registry.why_refused("gpu1", "a-second", clock.now)
    assert clock.registry.why_refused("gpu1", "a-gpu1", clock.now) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (HEAD, "only the node of the supervisor"),
        ("", "cannot be the name of a node"),
        ("n" * 64, "cannot be the name of a node"),
        ("gpu1\n", "cannot be the name of a node"),
        ("-gpu1", "cannot be the name of a node"),
        ("n" * 63, ""),
        ("gpu-1.example_com", ""),
    ],
)
def test_names_of_nodes_can_be_written_everywhere(name: str, why: str) -> None:
    refused = NodeRegistry().why_refused(name, "a1", 0.0)
    assert why in refused
    assert bool(refused) == bool(why)


def test_an_expected_node_joins_with_its_hello_and_is_never_silent_before() -> None:
    clock = RegistryOnClock()
    clock.registry.expect("gpu1", "a1", clock.now)
    clock.registry.expect("gpu2", "a2", clock.now)
    clock.silent |= {"gpu1", "gpu2"}
    clock.run(20)
    assert clock.log == []
    assert clock.registry.hello(NodeFacts("gpu1"), "a1", clock.now).state is NodeConnection.READY
    assert [node.name for node in clock.registry.expected()] == ["gpu2"]
    clock.registry.lost(clock.registry.expected()[0], clock.now)
    assert [node.name for node in clock.registry.nodes()] == ["gpu1"]
    assert clock.registry.why_refused("gpu2", "a2", clock.now)


def test_a_step_that_the_table_does_not_have_is_an_error() -> None:
    clock = RegistryOnClock("gpu1")
    node = clock.registry.nodes()[0]
    clock.registry.lost(node, clock.now)
    with pytest.raises(IllegalTransitionError):
        clock.registry.lost(node, clock.now)


def test_a_lost_node_is_missing_until_it_joins_again_unless_it_left() -> None:
    clock = RegistryOnClock("gpu1", "gpu2")
    for node in clock.registry.nodes():
        clock.registry.lost(node, clock.now + 1.0, missing=node.name == "gpu1")
    assert [(node.name, node.state, node.since) for node in clock.registry.missing()] == [
        ("gpu1", NodeConnection.GONE, clock.now + 1.0)
    ]
    clock.registry.hello(NodeFacts("gpu1"), "a-renewed", clock.now + 2.0)
    assert clock.registry.missing() == []


def test_lost_agents_are_forgotten_when_there_are_many() -> None:
    registry = NodeRegistry()
    for number in range(MAX_REFUSED + 1):
        registry.lost(registry.hello(NodeFacts(f"n{number}"), f"a{number}", 0.0), 0.0)
    refused = [bool(registry.why_refused("new", f"a{number}", 0.0)) for number in (0, 1, MAX_REFUSED)]
    assert refused == [False, True, True]
    assert len(registry.missing()) == MAX_MISSING
