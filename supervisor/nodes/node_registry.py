"""Which nodes there are, in which state, and how long their agents have been silent. Pure: times are given as arguments.

Of each node there is one agent at a time. An agent that was lost is refused from then on: it has processes that this
server counts as ended. It ends them, and says Hello again under another id.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from protocol.messages.node_reports import NodeReport, NodeState
from protocol.messages.nodes import NodeHardware
from protocol.models.memory import Capacity
from protocol.models.nodes import NODE_SILENCE_S, NodeFacts, why_no_node_name
from protocol.state_table import next_state
from supervisor.nodes.node_states import TRANSITIONS, ConnectionEvent, NodeConnection

PING_INTERVAL_S: Final = 0.25
"""How often agents are pinged, and :meth:`NodeRegistry.look` is called."""
UNREACHABLE_S: Final = 1.0
"""After this long without an answer, a node is shown as unreachable."""
_LONGEST_PAUSE_S: Final = 0.5
"""If the supervisor itself did not run for this long, the silence of others proves nothing."""
MAX_REFUSED: Final = 1024
"""Lost agents that are remembered. One that was forgotten has ended long ago."""
MAX_MISSING: Final = 256
"""Lost nodes that are shown."""
_SHOWN: Final = {
    NodeConnection.JOINING: NodeState.UNREACHABLE,
    NodeConnection.READY: NodeState.READY,
    NodeConnection.UNREACHABLE: NodeState.UNREACHABLE,
    NodeConnection.GONE: NodeState.LOST,
}
"""Its state → as it is shown, without what operators and the scheduler know."""


class Node(msgspec.Struct):
    """One node besides the head."""

    name: str
    agent: str
    """The id of its agent on the bus."""
    facts: NodeFacts
    state: NodeConnection = NodeConnection.JOINING
    since: float = 0.0
    """When it came into this state."""
    last_seen: float = 0.0
    """When its agent last sent anything."""
    memory: list[Capacity] = []
    """As it was read last."""
    memory_read_at: float = -math.inf
    """When that was asked for."""
    hardware: NodeHardware | None = None
    """None before its agent has got its settings."""
    drains: str = ""
    """Why its agent is about to end, as a clause; empty if it is not."""
    drains_since: float = 0.0

    def note_drain(self, why: str, now: float) -> None:
        """Take note of what its agent says: why the node drains, or that it does not."""
        if bool(why) != bool(self.drains):
            self.drains_since = now
        self.drains = why

    def report(self, now: float) -> NodeReport:
        """Return what is shown of it. A lost one is shown without its memory, which is out of date."""
        gone = self.state is NodeConnection.GONE
        read_s = now - self.memory_read_at
        memory = [] if gone else [structs.replace(each, age=each.age + read_s) for each in self.memory]
        since = self.drains_since if self.drains and self.state is NodeConnection.READY else self.since
        return NodeReport(self.facts, _SHOWN[self.state], now - since, memory, reason="" if gone else self.drains)

    @property
    def is_known(self) -> bool:
        """Whether its agent has said Hello to this supervisor."""
        return self.state not in (NodeConnection.JOINING, NodeConnection.GONE)


class Silence(NamedTuple):
    """What :meth:`NodeRegistry.look` has found."""

    lost: list[Node]
    unreachable: list[Node]
    """Since this look."""
    back: list[Node]
    """No longer unreachable, since this look."""


class NodeRegistry:
    """The nodes besides the head."""

    def __init__(self) -> None:
        """There is none."""
        self._nodes: dict[str, Node] = {}
        self._refused: dict[str, None] = {}
        """Agents that were lost; the latest is the last one."""
        self._missing: dict[str, Node] = {}
        """Nodes that were lost, and have not joined again; the latest is the last one."""
        self._looked = 0.0

    @property
    def has_nodes(self) -> bool:
        """Whether there is any, missing ones included. Quick: this is asked for each model that is shown."""
        return bool(self._nodes or self._missing)

    def nodes(self) -> list[Node]:
        """Return all nodes, by name."""
        return sorted(self._nodes.values(), key=lambda node: node.name)

    def missing(self) -> list[Node]:
        """Return the nodes that were lost and have not joined again."""
        return list(self._missing.values())

    def get(self, name: str) -> Node | None:
        """Return a node, None if there is none of this name."""
        return self._nodes.get(name)

    def of_agent(self, agent: str) -> Node | None:
        """Return the node of an agent, None if it is the agent of none."""
        return next((node for node in self._nodes.values() if node.agent == agent), None)

    def expect(self, name: str, agent: str, now: float) -> None:
        """Expect a node of an earlier supervisor."""
        self._nodes[name] = Node(name, agent, NodeFacts(name), since=now)

    def expected(self) -> list[Node]:
        """Return the nodes whose agents have not said Hello to this supervisor."""
        return [node for node in self.nodes() if node.state is NodeConnection.JOINING]

    def why_refused(self, name: str, agent: str, now: float) -> str:
        """Return why an agent that says Hello is refused, empty if it is not."""
        if agent in self._refused:
            return f"node {name} was counted as lost: this agent was silent for more than {NODE_SILENCE_S:g} s"
        known = self._nodes.get(name)
        if why := why_no_node_name(name):
            return why
        if known is not None and known.agent != agent:
            return f"node {name} has another agent, which was seen {now - known.last_seen:.1f} s ago"
        return ""

    def hello(self, facts: NodeFacts, agent: str, now: float) -> Node:
        """Take note of an agent's Hello that is not refused; return its node, which is new unless it was known before."""
        node = self._nodes.get(facts.name)
        if node is None:
            node = self._nodes[facts.name] = Node(facts.name, agent, facts, since=now)
            self._missing.pop(facts.name, None)
        node.facts, node.last_seen = facts, now
        self._transition(node, ConnectionEvent.HELLO, now)
        return node

    def look(self, now: float) -> Silence:
        """Return what follows from the silence of agents until now. To be called every :data:`PING_INTERVAL_S`."""
        if now - self._looked > PING_INTERVAL_S + _LONGEST_PAUSE_S:
            for node in self._nodes.values():
                node.last_seen = now
        self._looked = now
        found = Silence([], [], [])
        for node in self.nodes():
            if not node.is_known:
                continue
            silent = now - node.last_seen
            if silent > NODE_SILENCE_S:
                found.lost.append(node)
            elif silent > UNREACHABLE_S and node.state is not NodeConnection.UNREACHABLE:
                self._transition(node, ConnectionEvent.SILENT, now)
                found.unreachable.append(node)
            elif silent <= UNREACHABLE_S and node.state is NodeConnection.UNREACHABLE:
                self._transition(node, ConnectionEvent.ANSWERED, now)
                found.back.append(node)
        return found

    def lost(self, node: Node, now: float, *, missing: bool = True) -> None:
        """Forget a node that has no agent any more, and refuse its agent from now on. ``missing``: it was not told to leave."""
        self._transition(node, ConnectionEvent.LOST, now)
        del self._nodes[node.name]
        if missing:
            self._missing[node.name] = node
            _drop_oldest(self._missing, MAX_MISSING)
        self._refused[node.agent] = None
        _drop_oldest(self._refused, MAX_REFUSED)

    @staticmethod
    def _transition(node: Node, event: ConnectionEvent, now: float) -> None:
        before, node.state = node.state, next_state(TRANSITIONS, node.state, event)
        if node.state is not before:
            node.since = now


def _drop_oldest(kept: dict[str, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]
