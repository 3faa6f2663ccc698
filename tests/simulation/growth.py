"""What one event costs the scheduler: each worker always has the same load, and there are more and more of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tests.simulation.engines import GB, SLOTS, virtual_models
from tests.simulation.measures import SchedulerCost
from tests.simulation.scheduled_cluster import ScheduledCluster
from tests.simulation.traffic import Traffic
from tests.simulation.virtual_parts import ClusterSize, Faults

WORKERS_OF_NODE: Final = 10
NODE_MEMORY: Final = 160 * GB
EXPONENT: Final = 0.8
USUAL_SLOTS: Final = 0.8 * SLOTS
"""Streams that a model has on average at the peak, at most: one engine must be able to serve it."""
STEADY_OF_WORKERS: Final = 0.95
"""Models that are used all day. They are loaded before the first request."""
RARE_OF_WORKERS: Final = 0.2
"""Models that take turns in the rest of the memory."""
STREAMS_OF_WORKER: Final = 25
"""At the peak."""
ENGINE_LIFE_S: Final = 86_400.0
NODE_LIFE_S: Final = 172_800.0
SHORT_ENGINE_LIFE_S: Final = 20_000.0
"""For the growth: in its short days, something must fail."""
SHORT_NODE_LIFE_S: Final = 12_000.0


class Growth(msgspec.Struct):
    """The cost with ``workers`` workers."""

    workers: int
    models: int
    requests: int
    cost: SchedulerCost


def cluster(workers: int, streams: int, day: float, seed: int) -> tuple[Traffic, ClusterSize, Faults]:
    """Return a cluster of this size, its day, and what fails in it."""
    steady = int(workers * STEADY_OF_WORKERS)
    models = virtual_models(steady, EXPONENT, USUAL_SLOTS / streams, seed, rare=int(workers * RARE_OF_WORKERS))
    size = ClusterSize(math.ceil(workers / WORKERS_OF_NODE), workers, NODE_MEMORY, loaded=steady)
    faults = Faults(engine_death=ENGINE_LIFE_S / workers, node_loss=NODE_LIFE_S / size.nodes)
    return Traffic(models, streams, day, seed), size, faults


def measure(numbers: Sequence[int], day: float, seed: int, note: Callable[[str], object]) -> list[Growth]:
    """Let a day pass with each number of workers."""
    found = []
    for workers in numbers:
        note(f"{workers} workers")
        traffic, size, _ = cluster(workers, workers * STREAMS_OF_WORKER, day, seed)
        faults = Faults(SHORT_ENGINE_LIFE_S / workers, SHORT_NODE_LIFE_S / size.nodes)
        result, cost = ScheduledCluster(traffic, size, faults).run()
        found.append(Growth(workers, len(traffic.models), result.requests, cost))
    return found
