"""The devices of other nodes, as their drivers last showed them: one job that reads them on each node that has any."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from protocol.messages.devices import DevicesRead
from protocol.messages.nodes import NodeHardware, WorkerFigures
from protocol.models.memory import HOST, Capacity, EngineDevice
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.machine.device_readings import INTERVAL_S, DeviceReadings
from supervisor.machine.held_memory import all_held
from supervisor.runtime.jobs import Jobs


class NodeDevices:
    """The readings of all nodes but the head."""

    def __init__(
        self,
        loop: Loop,
        jobs: Jobs,
        bus: SupervisorBus,
        workers: Callable[[str], list[int]],
        closing: Callable[[], bool],
        on_read: Callable[[float], None],
    ) -> None:
        """``workers`` returns the pids of the workers of a node, ``closing`` whether the server ends.

        ``on_read`` is called after each reading, with the time when it was asked for.
        """
        self._loop, self._jobs, self._bus = loop, jobs, bus
        self._workers, self._closing, self._on_read = workers, closing, on_read
        self._nodes: dict[str, DeviceReadings] = {}
        self._hardware: dict[str, NodeHardware] = {}

    def start(self) -> None:
        """Read from now on."""
        self._loop.every(INTERVAL_S, self._ask)

    def joined(self, node: str, hardware: NodeHardware | None) -> None:
        """A node is in the server, or says something else of itself. One without graphics cards has nothing to read."""
        if hardware is None or self._hardware.get(node) == hardware:
            return
        self._hardware[node] = hardware
        self._nodes.pop(node, None)
        if not hardware.drivers:
            return
        readings = DeviceReadings(
            loop=self._loop,
            jobs=self._jobs,
            bus=self._bus,
            machine=hardware.machine,
            drivers=hardware.drivers,
            workers=partial(self._workers, node),
            closing=lambda: self._closing() or self._nodes.get(node) is not readings,
            node=node,
        )
        readings.on_read = self._on_read
        self._nodes[node] = readings
        readings.begin()

    def left(self, node: str) -> None:
        """A node is gone, with its job."""
        self._nodes.pop(node, None)
        self._hardware.pop(node, None)

    def _ask(self) -> None:
        for readings in self._nodes.values():
            readings.ask()

    def read(self, peer: str, message: DevicesRead, payload: bytes) -> None:
        """Take what the job of some node has read."""
        for readings in self._nodes.values():
            readings.read(peer, message, payload)

    def capacities(self, node: str) -> list[Capacity]:
        """Return the memory of each device of a node that has its own."""
        return self._nodes[node].capacities() if node in self._nodes else []

    def on_devices(self, node: str, pids: Collection[int]) -> dict[str, int]:
        """Return place → memory that processes of a node used on its devices when they were read last."""
        return self._nodes[node].used_by(pids) if node in self._nodes else {}

    def held(self, node: str, workers: Mapping[str, WorkerFigures]) -> dict[str, dict[str, int]]:
        """Return worker → bytes by place that its engine holds on a node, of the host and of devices."""
        return {
            worker: all_held(figures.held.get(HOST, 0), self.on_devices(node, figures.resident))
            for worker, figures in workers.items()
        }

    def refresh(self, node: str, done: Callable[[], None]) -> None:
        """Read the devices of a node, if any has memory of its own, and call ``done``."""
        if self.capacities(node):
            self._nodes[node].refresh(done)
        else:
            done()

    def for_engines(self, node: str, use: Callable[[list[EngineDevice]], None]) -> None:
        """Call ``use`` with the devices of a node that engines may compute on, once they are known."""
        if node in self._nodes:
            self._nodes[node].for_engines(use)
        else:
            use([])

    def problems(self) -> list[str]:
        """Return what is not known of devices, as sentences."""
        return [f"node {node}: {each}" for node, readings in self._nodes.items() for each in readings.problems()]
