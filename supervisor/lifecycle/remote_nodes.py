"""The nodes besides the head, as the rest of the supervisor asks for them: a server on one machine has none.

::

    made        before the other components, which need the placement and the model files
    connect     the other components are there: agents and gateways are taken from now on
    take_over   only if this supervisor takes over: who is waited for, and what takes over jobs
    start       the server serves: what has not been taken over is started
    tell_end    the server begins to end
    end         everything else has ended; asked again until it is True
    forget_run  the server has ended in order
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocol.models.memory import EngineDevice
from protocol.models.nodes import NodeFacts
from protocol.models.recipes import ModelSpec
from supervisor.processes.placement import Placement
from supervisor.recovery.taken_over_jobs import TakeOverJob

if TYPE_CHECKING:  # a server on one machine has none of these
    from protocol.messages.devices import DevicesRead
    from supervisor.lifecycle.components import Components
    from supervisor.node_files.node_files import NodeFiles
    from supervisor.nodes.agents import NodeAgents
    from supervisor.nodes.remote_gateways import RemoteGateways
    from supervisor.peers.handshake import Handshake
    from supervisor.recovery.taken_over_nodes import TakenOverNodes


class RemoteNodes:
    """Those of a server on one machine: none. :class:`~supervisor.lifecycle.cluster.Cluster` has those of a cluster."""

    agents: NodeAgents | None = None
    gateways: RemoteGateways | None = None
    node_files: NodeFiles | None = None
    """Which of them have the files of which models."""

    def __init__(self, placement: Placement, head: NodeFacts) -> None:
        """``placement``: of all processes. ``head``: what this machine has."""
        self.placement, self.head = placement, head

    # From start to end

    def connect(self, components: Components, handshake: Handshake) -> None:
        """Take part from now on: messages of other nodes are handled, and the scheduler learns of nodes."""

    def job_kinds(self) -> dict[type, TakeOverJob]:
        """Return what takes over an earlier supervisor's jobs for the cluster, by the type of their order."""
        return {}

    def take_over(self, handshake: Handshake) -> TakenOverNodes | None:  # noqa: ARG002 - there is nothing
        """Return the nodes of an earlier supervisor; None if there can be none."""
        return None

    def start(self) -> None:
        """Start what has not been taken over."""

    def tell_end(self) -> None:
        """Tell those who must know it in time that the server ends."""

    def end(self) -> bool:
        """Tell all that the server ends; return whether they have left, or have had enough time for it."""
        return True

    # The run, which a later start goes on with

    def agents_of_last_run(self) -> dict[str, str] | None:
        """Return the agents, by node, of a server that has not ended in order; None if it has."""
        return None

    def forget_run(self) -> None:
        """The server ends in order: no later start goes on with it."""

    # What workers on other nodes need

    def fetch_files(self, model: str, spec: ModelSpec, node: str) -> None:
        """Bring the files of a model to a node."""

    def paths_at(self, node: str, spec: ModelSpec) -> Mapping[str, str]:  # noqa: ARG002 - there is nothing
        """Return path on the head → path on the node, for the files of a model."""
        return {}

    def devices_at(self, node: str, use: Callable[[list[EngineDevice]], None]) -> None:
        """Call ``use`` with the devices of a node that engines may compute on, once they are known."""

    def read_body(self, file: str, use: Callable[[bytes | Exception], None]) -> None:
        """Call ``use`` with the body of a request that a gateway has put into a file, or with the OSError that says why not."""

    def request_resources(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Ask the cluster engine for further nodes."""

    def worker_has(self, worker: str, spec: ModelSpec, paths: Mapping[str, str]) -> None:
        """Note that a worker of an earlier supervisor runs a model with these files of its node."""

    def files_removed(self, model: str, files: list[str]) -> None:
        """Remove the copies of files of a model, which were removed on the head."""

    def where(self) -> Mapping[str, list[str]] | None:
        """Return model → the nodes that have its files; None on a server on one machine."""
        return None

    # What they have

    def read_memory(self, node: str) -> None:
        """Read the memory of a node, for the scheduler."""

    def held_on_devices(self, worker: str, node: str) -> dict[str, int]:  # noqa: ARG002 - there is nothing
        """Return what the engine of a worker held on the devices of its node when they were read last, by place."""
        return {}

    def devices_read(self, peer: str, message: DevicesRead, payload: bytes) -> None:
        """Take what a job has read on another node."""

    def backends_changed(self) -> None:
        """Another backend can run on the head, or one cannot run any more."""

    def problems(self) -> list[str]:
        """Return what does not work with the cluster engine, and with the devices and model files of nodes, as sentences."""
        return []

    # Gateways there, and the end of any process

    def adopt_gateways(self, on_ended: Callable[[str], None]) -> list[str]:  # noqa: ARG002 - there is nothing
        """Return the gateways of an earlier supervisor. ``on_ended`` gets the name of each once."""
        return []

    def gateway_has_left(self, gateway: str) -> bool:  # noqa: ARG002 - there is nothing
        """Return whether a gateway has said that it leaves; once, when its end is handled."""
        return False

    def given_up(self, peer: str) -> None:
        """Give up an agent, a gateway or a host of some that is silent or does not read. Do nothing if it is none."""
