"""The nodes besides the head of a server with a cluster: their agents, gateways, devices and copies of model files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.messages.devices import DevicesRead
from protocol.messages.model_transfer import ShareFiles, StartFileTransfer
from protocol.messages.ray_cluster import WatchRayCluster
from protocol.models.checkpoints import hub_cache
from protocol.models.memory import EngineDevice
from protocol.models.nodes import HEAD, NodeFacts
from protocol.models.recipes import ModelSpec
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.lifecycle.remote_nodes import RemoteNodes
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
from supervisor.processes.spooled_bodies import SpooledBodies
from supervisor.recovery.taken_over_jobs import TakeOverJob
from supervisor.recovery.taken_over_nodes import TakenOverNodes

if TYPE_CHECKING:
    from supervisor.lifecycle.components import Components


class Cluster(RemoteNodes):
    """See :class:`RemoteNodes` for what each method does, and in which order they are called."""

    agents: NodeAgents
    gateways: RemoteGateways
    node_files: NodeFiles

    def __init__(
        self, loop: Loop, bus: SupervisorBus, local: LocalPlacement, head: NodeFacts, prove: Callable[[str], str]
    ) -> None:
        """No node has joined yet. ``local``: the placement of this machine. ``prove``: returns the proof for a process that is started."""
        self._others = NodePlacement(bus.send, prove)
        super().__init__(ClusterPlacement(loop, local, self._others), head)
        self.node_files = NodeFiles()
        self._ray: RayNodes | None = None

    # From start to end

    def connect(self, components: Components, handshake: Handshake) -> None:
        """See :meth:`RemoteNodes.connect`."""
        self._settings, self._loop, self._scheduler = components.settings, components.loop, components.scheduler
        self._state_dir, self._boot = Path(components.settings.state_dir), components.process_context.boot
        self._finish_write = components.state_writer.finish
        self._devices = NodeDevices(
            loop=components.loop,
            jobs=components.jobs,
            bus=components.bus,
            workers=self._pids,
            closing=self._closing,
            on_read=components.devices.on_read,
        )
        self.agents = NodeAgents(
            settings=components.settings,
            loop=components.loop,
            bus=components.bus,
            peers=components.peers,
            placement=self._others,
            record=components.record,
            scheduler=components.scheduler,
            decisions=components.decisions,
            devices=self._devices,
        )
        self.gateways = RemoteGateways(
            settings=components.settings,
            boot=components.process_context.boot,
            loop=components.loop,
            bus=components.bus,
            peers=components.peers,
            record=components.record,
            key_file=components.key_file,
        )
        self._bodies = SpooledBodies(components.loop, components.process_context)
        self._senders = FileSenders(components.loop, components.jobs, components.bus, self._closing)
        self._transfers = FileTransfers(
            loop=components.loop,
            jobs=components.jobs,
            bus=components.bus,
            models=components.models,
            node_files=self.node_files,
            senders=self._senders,
            folders=HeadFolders(hub_cache(), Path(components.settings.cache_dir)),
            scheduler=components.scheduler,
            decisions=components.decisions,
        )
        if components.settings.placement == "ray":
            self._ray = RayNodes(components.loop, components.jobs, components.bus, self._closing)
            components.messages.add(self._ray.handlers())
        self.agents.on_joined, self.agents.on_left, self.agents.keep = self._joined, self._left, self._keep_run
        self.agents.welcome = self.gateways.welcome = handshake.welcome
        for part in (self.agents, self.gateways, self._transfers):
            components.messages.add(part.handlers())
        for follows in (self.agents, self._devices, self.gateways):
            follows.start()
        self.backends_changed()

    def job_kinds(self) -> dict[type, TakeOverJob]:
        """See :meth:`RemoteNodes.job_kinds`."""
        copies: dict[type, TakeOverJob] = {
            StartFileTransfer: self._transfers.take_over,
            ShareFiles: self._senders.take_over,
        }
        return {**copies, WatchRayCluster: self._ray.take_over} if self._ray is not None else copies

    def take_over(self, handshake: Handshake) -> TakenOverNodes:
        """See :meth:`RemoteNodes.take_over`."""
        return TakenOverNodes(self.agents, handshake)

    def start(self) -> None:
        """See :meth:`RemoteNodes.start`."""
        if self._ray is not None:
            self._ray.start()

    def tell_end(self) -> None:
        """See :meth:`RemoteNodes.tell_end`: hosts of gateways wait for the next start of the server."""
        self.gateways.end()

    def end(self) -> bool:
        """See :meth:`RemoteNodes.end`."""
        self.gateways.end()  # a host may have joined meanwhile
        return self.agents.end()

    # What agents tell

    def _joined(self, node: Node) -> None:
        self._devices.joined(node.name, node.hardware)
        self._transfers.node_joined(node.name)

    def _left(self, node: str) -> None:
        self._devices.left(node)
        self._transfers.node_left(node)

    def _keep_run(self, agents: dict[str, str]) -> None:
        """Let a later start know of these agents."""
        cluster_run.write(self._state_dir, ClusterRun(self._boot, agents), self._finish_write)

    def agents_of_last_run(self) -> dict[str, str] | None:
        """See :meth:`RemoteNodes.agents_of_last_run`."""
        run = cluster_run.read(self._state_dir)
        return run.agents if run is not None else None

    def forget_run(self) -> None:
        """See :meth:`RemoteNodes.forget_run`."""
        cluster_run.forget(self._state_dir)

    # What workers on other nodes need

    def fetch_files(self, model: str, spec: ModelSpec, node: str) -> None:
        """See :meth:`RemoteNodes.fetch_files`."""
        self._transfers.fetch(model, spec, node)

    def paths_at(self, node: str, spec: ModelSpec) -> Mapping[str, str]:
        """See :meth:`RemoteNodes.paths_at`."""
        return self.node_files.paths(node, spec)

    def read_body(self, file: str, use: Callable[[bytes | Exception], None]) -> None:
        """See :meth:`RemoteNodes.read_body`."""
        self._bodies.read(file, use)

    def devices_at(self, node: str, use: Callable[[list[EngineDevice]], None]) -> None:
        """See :meth:`RemoteNodes.devices_at`."""
        self._devices.for_engines(node, use)

    def request_resources(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """See :meth:`RemoteNodes.request_resources`."""
        if self._ray is not None:
            self._ray.request_resources(bundles)

    def worker_has(self, worker: str, spec: ModelSpec, paths: Mapping[str, str]) -> None:
        """See :meth:`RemoteNodes.worker_has`."""
        shared = [path for on_head, path in paths.items() if path == on_head]
        self.node_files.found(self.placement.node_of(worker), spec, paths, shared)

    def files_removed(self, model: str, files: list[str]) -> None:
        """See :meth:`RemoteNodes.files_removed`."""
        self._transfers.remove(model, files)

    def where(self) -> Mapping[str, list[str]] | None:
        """See :meth:`RemoteNodes.where`."""
        return self._transfers.where()

    # What they have

    def read_memory(self, node: str) -> None:
        """See :meth:`RemoteNodes.read_memory`."""
        self.agents.memory.read(node)

    def held_on_devices(self, worker: str, node: str) -> dict[str, int]:
        """See :meth:`RemoteNodes.held_on_devices`."""
        return self.agents.memory.held_on_devices(worker, node)

    def devices_read(self, peer: str, message: DevicesRead, payload: bytes) -> None:
        """See :meth:`RemoteNodes.devices_read`."""
        self._devices.read(peer, message, payload)

    def backends_changed(self) -> None:
        """Tell the scheduler what the head has, as agents tell of their nodes."""
        self.head = read_node_facts(self._settings, HEAD, "", labels={}, resources={})
        self._scheduler.node_joined(self.head, self._loop.now())

    def problems(self) -> list[str]:
        """See :meth:`RemoteNodes.problems`."""
        of_ray = self._ray.problems() if self._ray is not None else []
        return [*of_ray, *self._devices.problems(), *self.node_files.problems()]

    # Gateways there, and the end of any process

    def adopt_gateways(self, on_ended: Callable[[str], None]) -> list[str]:
        """See :meth:`RemoteNodes.adopt_gateways`."""
        return self.gateways.expect(on_ended)

    def gateway_has_left(self, gateway: str) -> bool:
        """See :meth:`RemoteNodes.gateway_has_left`."""
        return self.gateways.has_left(gateway)

    def given_up(self, peer: str) -> None:
        """See :meth:`RemoteNodes.given_up`."""
        self.agents.unread(peer)
        self.gateways.lost(peer)

    def _pids(self, node: str) -> list[int]:
        """Return the pids of the workers of a node."""
        return [self.placement.pid(each.worker) for each in self._scheduler.view.workers() if each.node == node]

    def _closing(self) -> bool:
        """Return whether the server ends."""
        return self._scheduler.view.closing
