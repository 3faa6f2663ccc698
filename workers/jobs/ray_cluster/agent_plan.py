"""When an agent is started on which node of a Ray cluster, and again. Pure: times are given as arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from protocol.wire.bus_address import ClusterMembership

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME: Final = 63
_OWN_RESOURCES: Final = frozenset({"CPU", "GPU", "memory", "object_store_memory"})
STABLE_S: Final = 60.0
"""An agent that has run for this long is started at once when it ends: what made it end is something new."""


class RayError(Exception):
    """What went wrong with Ray, as a sentence without the point."""


class ClusterNode(NamedTuple):
    """A living node as Ray shows it."""

    id: str
    address: str
    ray_name: str
    """As ``ray start --node-name`` gave it; otherwise its address."""
    hostname: str
    labels: dict[str, str]
    resources: dict[str, float]
    """All of them, Ray's own included."""
    draining: bool = False
    """Whether Ray is about to end there: it starts nothing more, and waits for its actors, but not for long."""

    @property
    def custom_resources(self) -> dict[str, float]:
        """Those that the operator has declared."""
        return {
            name: amount
            for name, amount in self.resources.items()
            if name not in _OWN_RESOURCES and not name.startswith("node:")
        }


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is started with (``AgentSettings``), before the actor on its node replaces ``server`` by directories there."""

    server: str
    """Stands for the server among others that use the same Ray cluster."""
    node: str
    boot: str
    membership: ClusterMembership
    grace: float
    labels: dict[str, str]
    resources: dict[str, float]


class PlannedAgent(msgspec.Struct):
    """What is known of the agent of one node."""

    node: ClusterNode
    name: str
    """The name of the node in our server. It does not change while the node lives."""
    due: float | None
    """When to start the agent; None while it runs, or is being started."""
    started: float = 0.0
    pause: float = 0.0
    """How long the last pause before a start was."""
    running: bool = False
    problem: str = ""


class AgentPlan:
    """All nodes of a cluster but the head, by Ray's ids."""

    def __init__(self) -> None:
        """None is known."""
        self.agents: dict[str, PlannedAgent] = {}
        self._replaced: set[str] = set()
        """Nodes whose machine has started Ray again. Ray counts a node as alive until it has been silent for long."""

    def nodes_seen(self, nodes: Sequence[ClusterNode], now: float) -> None:
        """Take note of all nodes that live now. Those that do not are forgotten, with their agents."""
        living = {node.id for node in nodes}
        self._replaced &= living
        new = [node for node in nodes if node.id not in self.agents and node.id not in self._replaced]
        addresses = {node.address for node in new}
        self._replaced |= {agent.node.id for agent in self.agents.values() if agent.node.address in addresses}
        remaining = living - self._replaced
        self.agents = {node: agent for node, agent in self.agents.items() if node in remaining}
        for node in new:
            others = [each for each in nodes if each.id in remaining]
            name = node_name(node, others, {each.name for each in self.agents.values()})
            self.agents[node.id] = PlannedAgent(node, name, now)
        for node in nodes:
            if node.id in self.agents:
                self.agents[node.id].node = node

    def draining(self) -> list[str]:
        """Return the nodes where Ray is about to end."""
        return [id_ for id_, agent in self.agents.items() if agent.node.draining]

    def due(self, now: float) -> list[PlannedAgent]:
        """Return the agents to start now."""
        waiting = [agent for agent in self.agents.values() if agent.due is not None and agent.due <= now]
        return [agent for agent in waiting if not agent.node.draining]

    def starting(self, node: str, now: float) -> None:
        """Take note that the agent of a node is being started."""
        agent = self.agents[node]
        agent.due, agent.started = None, now

    def runs(self, node: str) -> None:
        """Take note that an agent runs."""
        agent = self.agents[node]
        agent.running, agent.problem = True, ""

    def waits(self, node: str, why: str) -> None:
        """Take note that Ray has not started an agent yet."""
        self.agents[node].problem = why

    def ended(self, node: str, why: str, now: float) -> None:
        """Take note that an agent has ended, or could not be started."""
        agent = self.agents.get(node)
        if agent is None:
            return
        stable = agent.running and now - agent.started >= STABLE_S
        agent.pause = 0.0 if stable else min(LONGEST_PAUSE_S, 2 * agent.pause or FIRST_PAUSE_S)
        agent.running, agent.problem = False, why
        agent.due = now + agent.pause


def node_name(node: ClusterNode, nodes: Sequence[ClusterNode], taken: set[str]) -> str:
    """Return the name of a node in our server: the operator's, or its host name, or its address if that is not unique."""
    given = node.ray_name != node.address
    names = [each.ray_name if given else each.hostname for each in nodes]
    wanted = node.ray_name if given else node.hostname
    name = wanted if wanted and names.count(wanted) == 1 else node.address
    clean = _NOT_IN_NAMES.sub("-", name)[:_LONGEST_NAME].strip("-._") or "node"
    return clean if clean not in taken else f"{clean[: _LONGEST_NAME - 9]}-{node.id[:8]}"
