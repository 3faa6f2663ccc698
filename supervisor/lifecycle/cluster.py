"""What a server with a cluster has besides: the agents of other nodes, and a placement that knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.nodes.agents import NodeAgents
from supervisor.nodes.cluster_placement import ClusterPlacement
from supervisor.nodes.node_placement import NodePlacement
from supervisor.peers.handshake import Handshake
from supervisor.processes.local_placement import LocalPlacement
from supervisor.runtime.messages import Messages

if TYPE_CHECKING:
    from supervisor.lifecycle.components import Components


class Cluster:
    """Made before the other components, which need the placement, and connected when they are there."""

    def __init__(self, loop: Loop, bus: SupervisorBus, head: LocalPlacement) -> None:
        """No node has joined yet. ``head``: the placement of this machine."""
        self._others = NodePlacement(bus.send)
        self.placement = ClusterPlacement(loop, head, self._others)
        self.agents: NodeAgents

    def connect(self, components: Components) -> None:
        """Make what takes messages of agents, and tells the scheduler of nodes."""
        self.agents = NodeAgents(
            settings=components.settings,
            loop=components.loop,
            bus=components.bus,
            peers=components.peers,
            placement=self._others,
            record=components.record,
            scheduler=components.scheduler,
            decisions=components.decisions,
        )

    def begin(self, messages: Messages, handshake: Handshake) -> None:
        """Take messages of agents from now on."""
        self.agents.welcome = handshake.welcome
        messages.add(self.agents.handlers())
        self.agents.start()
