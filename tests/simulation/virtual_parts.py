"""What a virtual cluster consists of: its size, its workers, the attempts of requests, and how often something fails."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from protocol.ids import RequestKey
from tests.simulation.traffic import VirtualRequest


class ClusterSize(NamedTuple):
    """How many nodes, how many workers with models altogether, and the memory of a node in bytes."""

    nodes: int
    workers: int
    memory: int
    loaded: int = 0
    """How many models are loaded before the first request comes: those that are used most."""

    @property
    def models_of_node(self) -> int:
        """How many models may be loaded on one node."""
        return math.ceil(self.workers / self.nodes)


NODE_BACK_S: Final = 30.0
"""After this long, a node that was lost joins again."""


class Faults(NamedTuple):
    """How often something fails, in mean seconds between two."""

    engine_death: float = math.inf
    node_loss: float = math.inf


NO_FAULTS: Final = Faults()


class VirtualWorker:
    """A worker process: its node, what its engine holds, and the attempts that it works on."""

    def __init__(self, name: str, node: str) -> None:
        self.name, self.node = name, node
        self.held: dict[str, int] = {}
        self.ready = False
        self.running: dict[RequestKey, VirtualAttempt] = {}


class VirtualAttempt:
    """An attempt of a request that waits or runs."""

    def __init__(self, arrival: VirtualRequest, key: RequestKey, since: float) -> None:
        self.arrival, self.key, self.since = arrival, key, since
        self.worker: VirtualWorker | None = None
        self.first_token = math.inf
        """When it comes."""
