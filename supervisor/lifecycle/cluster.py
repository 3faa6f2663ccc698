"""What a server with a cluster has besides: the agents of other nodes, and a placement that knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.messages.model_transfer import ShareFiles, StartFileTransfer
from protocol.messages.ray_cluster import WatchRayCluster
from protocol.models.checkpoints import hub_cache
from protocol.models.memory import EngineDevice
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.node_files.file_senders import FileSenders
from supervisor.node_files.file_transfers import FileTransfers
from supervisor.node_files.node_files import NodeFiles
from supervisor.node_files.spec_files import HeadFolders
from supervisor.nodes.agents import NodeAgents
from supervisor.nodes.cluster_placement import ClusterPlacement
from supervisor.nodes.node_devices import NodeDevices
from supervisor.nodes.node_facts import read_node_facts
from supervisor.nodes.node_placement import NodePlacement
from supervisor.nodes.node_registry import Node
from supervisor.nodes.ray_nodes import RayNodes
from supervisor.nodes.remote_gateways import RemoteGateways
from supervisor.peers.handshake import Handshake
from supervisor.persistence import cluster_run
from supervisor.persistence.cluster_run import ClusterRun
from supervisor.processes.local_placement import LocalPlacement
from supervisor.recovery.taken_over_jobs import TakeOverJob
from supervisor.recovery.taken_over_nodes import TakenOverNodes
from supervisor.runtime.messages import Messages

if TYPE_CHECKING:
    from supervisor.lifecycle.components import Components


class Cluster:
    """Made before the other components, which need the placement, and connected when they are there."""

    def __init__(self, loop: Loop, bus: SupervisorBus, head: LocalPlacement) -> None:
        """No node has joined yet. ``head``: the placement of this machine."""
        self._others = NodePlacement(bus.send)
        self.placement = ClusterPlacement(loop, head, self._others)
        self.node_files = NodeFiles()
        self.agents: NodeAgents
        self.transfers: FileTransfers
        self.gateways: RemoteGateways
        self._ray: RayNodes | None = None

    def connect(self, components: Components) -> None:
        """Make what takes messages of agents, and tells the scheduler of nodes."""
        self._head_devices = components.devices
        self.devices = NodeDevices(
            loop=components.loop,
            jobs=components.jobs,
            bus=components.bus,
            workers=lambda node: [
                self.placement.pid(each.worker) for each in components.scheduler.view.workers() if each.node == node
            ],
            closing=lambda: components.scheduler.view.closing,
        )
        components.devices.elsewhere, self.devices.on_read = self.devices.read, components.devices.on_read
        self.agents = NodeAgents(
            settings=components.settings,
            loop=components.loop,
            bus=components.bus,
            peers=components.peers,
            placement=self._others,
            record=components.record,
            scheduler=components.scheduler,
            decisions=components.decisions,
            devices=self.devices,
        )
        components.held.elsewhere = self.agents.held_on_devices
        self.agents.keep = self._keep_run
        self.gateways = RemoteGateways(
            settings=components.settings,
            boot=components.process_context.boot,
            loop=components.loop,
            bus=components.bus,
            peers=components.peers,
            record=components.record,
            key_file=components.key_file,
        )
        if components.settings.placement == "ray":
            self._ray = RayNodes(
                components.loop, components.jobs, components.bus, lambda: components.scheduler.view.closing
            )
            components.effects.request_resources = self._ray.request_resources
        self.senders = FileSenders(
            components.loop, components.jobs, components.bus, lambda: components.scheduler.view.closing
        )
        self.transfers = FileTransfers(
            loop=components.loop,
            jobs=components.jobs,
            bus=components.bus,
            models=components.models,
            node_files=self.node_files,
            senders=self.senders,
            folders=HeadFolders(hub_cache(), Path(components.settings.cache_dir)),
            scheduler=components.scheduler,
            decisions=components.decisions,
        )
        self._settings, self._loop, self._scheduler = components.settings, components.loop, components.scheduler
        self._state_dir, self._boot = Path(components.settings.state_dir), components.process_context.boot
        self._finish_write = components.state_writer.finish
        self.read_head()
        self.agents.on_joined, self.agents.on_left = self._node_joined, self._node_left
        effects = components.effects
        effects.fetch_files, effects.paths_at, effects.devices_at = (
            self.transfers.fetch,
            self._paths_at,
            self._devices_at,
        )

    def _node_joined(self, node: Node) -> None:
        self.devices.joined(node.name, node.hardware)
        self.transfers.node_joined(node.name)

    def _node_left(self, node: str) -> None:
        self.devices.left(node)
        self.transfers.node_left(node)

    def _devices_at(self, worker: str, use: Callable[[list[EngineDevice]], None]) -> None:
        node = self.placement.node_of(worker)
        if node == HEAD:
            self._head_devices.for_engines(use)
        else:
            self.devices.for_engines(node, use)

    def read_head(self) -> None:
        """Tell the scheduler what the head has, as agents tell of their nodes: again when a backend was installed there."""
        self.head = read_node_facts(self._settings, HEAD, "", labels={}, resources={})
        self._scheduler.node_joined(self.head, self._loop.now())

    def _paths_at(self, worker: str, spec: ModelSpec) -> Mapping[str, str]:
        return self.node_files.paths(self.placement.node_of(worker), spec)

    def worker_has(self, worker: str, spec: ModelSpec, paths: Mapping[str, str]) -> None:
        """A worker of an earlier supervisor runs a model with these files of its node."""
        shared = [path for on_head, path in paths.items() if path == on_head]
        self.node_files.found(self.placement.node_of(worker), spec, paths, shared)

    def begin(self, messages: Messages, handshake: Handshake) -> None:
        """Take messages of agents from now on."""
        self.agents.welcome = self.gateways.welcome = handshake.welcome
        messages.add(self.agents.handlers())
        messages.add(self.transfers.handlers())
        messages.add(self.gateways.handlers())
        self.agents.start()
        self.devices.start()
        self.gateways.start()
        if self._ray is not None:
            messages.add(self._ray.handlers())

    def start(self) -> None:
        """Start what has not been taken over."""
        if self._ray is not None:
            self._ray.start()

    def taken_over(self, handshake: Handshake) -> TakenOverNodes:
        """Return the nodes of an earlier supervisor."""
        return TakenOverNodes(self.agents, handshake)

    # The run, which a later start goes on with

    def agents_of_last_run(self) -> dict[str, str] | None:
        """Return the agents, by node, of a server that has not ended in order; None if it has."""
        run = cluster_run.read(self._state_dir)
        return run.agents if run is not None else None

    def _keep_run(self, agents: dict[str, str]) -> None:
        """Let a later start know of these agents."""
        cluster_run.write(self._state_dir, ClusterRun(self._boot, agents), self._finish_write)

    def forget_run(self) -> None:
        """The server ends in order: no later start goes on with it."""
        cluster_run.forget(self._state_dir)

    def job_kinds(self) -> dict[type, TakeOverJob]:
        """Return what takes over an earlier supervisor's jobs for the cluster."""
        copies: dict[type, TakeOverJob] = {
            StartFileTransfer: self.transfers.take_over,
            ShareFiles: self.senders.take_over,
        }
        return {**copies, WatchRayCluster: self._ray.take_over} if self._ray is not None else copies

    def problems(self) -> list[str]:
        """Return what does not work with the cluster engine, and with the devices of nodes, as sentences."""
        return [*(self._ray.problems() if self._ray is not None else []), *self.devices.problems()]
