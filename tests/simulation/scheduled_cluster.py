"""A day on a cluster that exists on paper: the models of the start, the requests, and what fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.models.nodes import HEAD
from tests.simulation.measures import DayResult, HourResult, SchedulerCost, Stopwatch, size_of
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_parts import NODE_BACK_S

FIRST_LOADS: Final = 20.0
"""Loads a second, before the first request."""
FIRST_S: Final = 120.0
"""Seconds for the last of them."""


class ScheduledCluster(VirtualCluster):
    """A day on the cluster, event by event."""

    _memory = 0
    _first_loads = (0, 0)

    def run(
        self, hour: float = 3600.0, note: Callable[[HourResult], object] = lambda _: None
    ) -> tuple[DayResult, SchedulerCost]:
        """Let the day pass, and what still runs at its end. ``note`` is told what each part of ``hour`` seconds has shown."""
        self._tick()
        first = self._load_first()
        begin = self.clock.now
        self._expect_next(self.traffic.arrivals(begin))
        for mean, fault in ((self.faults.engine_death, self._engine_dies), (self.faults.node_loss, self._node_is_lost)):
            if mean < math.inf:
                self._repeat(mean, fault, begin + self.traffic.seconds)
        self.clock.after(self.traffic.seconds / 2, self._measure_memory)
        while (self.tally.open or self.clock.now < begin + self.traffic.seconds) and self.clock.step():
            if self.clock.now - begin >= hour * (len(self.tally.hours) + 1):
                note(self.tally.end_hour(self.clock.now - begin, self._streams, *self._counted(), self.watch.total))
        loads, evictions = self._counted()
        result = self.tally.result("lemonbus", loads=loads, evictions=evictions, simulated_s=self.clock.now - begin)
        cost = self.watch.cost()
        cost.memory, cost.first_loads, cost.first_seconds = self._memory, self.size.loaded, first
        return result, cost

    def _load_first(self) -> float:
        """Load the models that are used most, before the first request comes; return the processor time for that."""
        for number, model in enumerate(self.traffic.models[: self.size.loaded]):
            load = partial(self.scheduler.load_requested, "g0", number, self.targets[model.name])
            self.clock.after(number / FIRST_LOADS, lambda load=load: self._event("load", lambda: load(self.clock.now)))
        end = self.clock.now + self.size.loaded / FIRST_LOADS + FIRST_S if self.size.loaded else 0.0
        while self.clock.now < end and self.clock.step():
            pass
        seconds, self.watch = self.watch.total - self.watch.seconds["tick"], Stopwatch()
        self._first_loads = self._counted()
        return seconds

    def _counted(self) -> tuple[int, int]:
        """Return how many loads and evictions there were since the first request."""
        counters, (loads, evictions) = self.scheduler.view.counters, self._first_loads
        return counters.get("loads", 0) - loads, counters.get("evictions", 0) - evictions

    def _measure_memory(self) -> None:
        self._memory = size_of(self.scheduler.view)

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _repeat(self, mean: float, fault: Callable[[], object], end: float) -> None:
        def happen() -> None:
            fault()
            self._repeat(mean, fault, end)

        if self.clock.now < end:
            self.clock.after(self._draw.expovariate(1 / mean), happen)

    def _engine_dies(self) -> None:
        """A random engine that works on requests dies of none of them."""
        working = [worker for worker in self.workers.values() if worker.running]
        if working:
            worker = self._draw.choice(working)
            worker.held, worker.ready = {}, False
            lost = self._lose_streams(worker)
            failure = Failure(Code.BACKEND_DIED, "SIGSEGV")
            self._event(
                "worker", lambda: self.scheduler.engine_died(worker.name, failure, self.clock.now, worked=bool(lost))
            )
            self._retry(lost)

    def _node_is_lost(self) -> None:
        """A random node is gone, with all of its workers. It is back a while later."""
        node = self._draw.choice(sorted(self.nodes - {HEAD})) if len(self.nodes) > 1 else ""
        if node:
            gone = self._on.pop(node, {}).values()
            lost = [attempt for worker in gone for attempt in self._lose_streams(worker)]
            for worker in gone:
                del self.workers[worker.name]
            self.nodes.remove(node)
            failure = Failure(Code.NODE_LOST, f"node {node} is not reachable")
            self._event("node", lambda: self.scheduler.node_left(node, failure, self.clock.now))
            self._retry(lost)
            self.clock.after(NODE_BACK_S, partial(self._join, node))
