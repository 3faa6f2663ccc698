"""What a server with a cluster has besides: the agents of other nodes, and a placement that knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.ray_cluster import WatchRayCluster
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.nodes.agents import NodeAgents
from supervisor.nodes.cluster_placement import ClusterPlacement
from supervisor.nodes.node_placement import NodePlacement
from supervisor.nodes.ray_nodes import RayNodes
from supervisor.peers.handshake import Handshake
from supervisor.processes.local_placement import LocalPlacement
from supervisor.recovery.taken_over_jobs import TakeOverJob
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
        self._ray: RayNodes | None = None

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
        if components.settings.placement == "ray":
            self._ray = RayNodes(
                components.loop, components.jobs, components.bus, lambda: components.scheduler.view.closing
            )
            components.effects.request_resources = self._ray.request_resources

    def begin(self, messages: Messages, handshake: Handshake) -> None:
        """Take messages of agents from now on."""
        self.agents.welcome = handshake.welcome
        messages.add(self.agents.handlers())
        self.agents.start()
        if self._ray is not None:
            messages.add(self._ray.handlers())
            messages.when_serving(self._ray.start)

    def job_kinds(self) -> dict[type, TakeOverJob]:
        """Return what takes over an earlier supervisor's jobs for the cluster."""
        return {WatchRayCluster: self._ray.take_over} if self._ray is not None else {}

    def problems(self) -> list[str]:
        """Return what does not work with the cluster engine, as sentences."""
        return self._ray.problems() if self._ray is not None else []
