"""Reads the memory of other nodes: their devices, then what their agents say. The scheduler is told what is still true by then."""

from __future__ import annotations

import itertools
from functools import partial

from protocol.messages.nodes import NodeRead, ReadNode
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.nodes.node_devices import NodeDevices
from supervisor.nodes.node_placement import NodePlacement
from supervisor.nodes.node_registry import Node, NodeRegistry
from supervisor.scheduler.scheduler import Scheduler


class NodeMemoryReader:
    """The readings that are under way, at most one of each node."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        registry: NodeRegistry,
        placement: NodePlacement,
        scheduler: Scheduler,
        devices: NodeDevices,
    ) -> None:
        """Nothing is being read. ``registry``: the nodes; ``devices``: theirs."""
        self._loop, self._bus, self._registry = loop, bus, registry
        self._placement, self._scheduler, self._devices = placement, scheduler, devices
        self._readings = itertools.count(1)
        self._asked: dict[str, tuple[int, int, float]] = {}
        """Node whose memory is being read → the number of the order, how often its memory had changed then, and when that was."""

    def read(self, name: str) -> None:
        """Read the memory of a node, unless that is being done. The scheduler is told when the agent has answered."""
        node = self._registry.get(name)
        if node is None or name in self._asked:
            return
        number = next(self._readings)
        self._asked[name] = (number, self._scheduler.view.memory_changes(name), self._loop.now())
        self._devices.refresh(name, partial(self._ask, node, number))

    def forget(self, name: str) -> None:
        """Expect no answer of a node any more."""
        self._asked.pop(name, None)

    def _ask(self, node: Node, number: int) -> None:
        """Ask the agent, once the devices were read. The node may have left meanwhile."""
        if self._asked.get(node.name, (0,))[0] == number:
            workers = [each.worker for each in self._scheduler.view.workers() if each.node == node.name]
            self._bus.send(node.agent, ReadNode(number, workers))

    def take(self, agent: str, message: NodeRead, _payload: bytes) -> None:
        """Take the answer of an agent, and tell the scheduler if nothing has changed since the order."""
        node = self._registry.of_agent(agent)
        asked = self._asked.get(node.name) if node is not None else None
        if node is None or asked is None or asked[0] != message.number:
            return
        del self._asked[node.name]
        node.memory = [*message.capacities, *self._devices.capacities(node.name)]
        node.memory_read_at = asked[2]
        self._placement.figures_read(node.name, message.workers)
        if asked[1] == self._scheduler.view.memory_changes(node.name):
            held = self._devices.held(node.name, message.workers)
            self._scheduler.memory_read(node.name, node.memory, held, asked[2])

    def held_on_devices(self, worker: str, node: str) -> dict[str, int]:
        """Return what the engine of a worker held on the devices of its node when they were read last, by place."""
        processes, was_read = self._placement.engine_pids(worker, self._scheduler.view.engine_of(worker))
        if not was_read:
            self.read(node)  # the engine may have started other processes
        return self._devices.on_devices(node, processes)
