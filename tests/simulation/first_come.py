"""First come, first served, over the same nodes: what a proxy in front of several servers does.

Each model has its node, chosen by its name. A node serves strictly in the order of arrival: the first request that waits
holds up all others of its node until its model is loaded and has a free slot. If there is no memory, the least recently
used model is ended as soon as its streams have ended.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from tests.simulation.engines import LEAVE_S, SLOTS, VirtualModel, stream_times
from tests.simulation.measures import DayResult, HourResult, RequestTally
from tests.simulation.paper_clock import PaperClock
from tests.simulation.traffic import Traffic, VirtualRequest
from tests.simulation.virtual_parts import ClusterSize


class _Engine:
    """A model on its node."""

    def __init__(self, model: VirtualModel) -> None:
        self.model = model
        self.ready = self.leaving = False
        self.running: set[int] = set()
        self.last_use = 0.0


class _Node:
    """A node: its engines by model, and what waits, in the order of arrival."""

    def __init__(self) -> None:
        self.engines: dict[str, _Engine] = {}
        self.queue: deque[VirtualRequest] = deque()


class FirstComeCluster:
    """A day on the cluster, event by event."""

    def __init__(self, traffic: Traffic, size: ClusterSize) -> None:
        self.traffic, self.size = traffic, size
        self.clock, self.tally = PaperClock(), RequestTally()
        self.models = {model.name: model for model in traffic.models}
        self.nodes = [_Node() for _ in range(size.nodes)]
        self._streams = self._loads = self._evictions = 0
        self._most_engines = size.models_of_node

    def run(self, hour: float = 3600.0, note: Callable[[HourResult], object] = lambda _: None) -> DayResult:
        """Let the day pass, and what still runs at its end. ``note`` is told what each part of ``hour`` seconds has shown."""
        for model in self.traffic.models[: self.size.loaded]:
            node = self._node_of(model.name)
            if self._fits(node, model):
                node.engines[model.name] = engine = _Engine(model)
                engine.ready = True
        self._expect_next(self.traffic.arrivals(0.0))
        while self.tally.open or self.clock.now < self.traffic.seconds:
            if not self.clock.step():
                break
            if self.clock.now >= hour * (len(self.tally.hours) + 1):
                note(self.tally.end_hour(self.clock.now, self._streams, self._loads, self._evictions))
        return self.tally.result(
            "first come, first served", loads=self._loads, evictions=self._evictions, simulated_s=self.clock.now
        )

    def _expect_next(self, arrivals: Iterator[VirtualRequest]) -> None:
        arrival = next(arrivals, None)
        if arrival is not None:
            self.clock.after(arrival.at - self.clock.now, partial(self._arrive, arrival, arrivals))

    def _arrive(self, arrival: VirtualRequest, arrivals: Iterator[VirtualRequest]) -> None:
        node = self._node_of(arrival.model)
        self.tally.arrived(arrival.number, arrival.key)
        node.queue.append(arrival)
        if arrival.patience < math.inf:
            self.clock.after(arrival.patience, partial(self._hang_up, node, arrival))
        self._serve(node)
        self._expect_next(arrivals)

    def _node_of(self, model: str) -> _Node:
        return self.nodes[zlib.crc32(model.encode()) % len(self.nodes)]

    def _fits(self, node: _Node, model: VirtualModel) -> bool:
        taken = sum(engine.model.need for engine in node.engines.values())
        return taken + model.need <= self.size.memory and len(node.engines) < self._most_engines

    def _serve(self, node: _Node) -> None:
        while node.queue:
            first = node.queue[0]
            engine = node.engines.get(first.model)
            if first.number not in self.tally.open:
                node.queue.popleft()
            elif engine is not None and engine.ready and not engine.leaving and len(engine.running) < SLOTS:
                self._grant(node, engine, node.queue.popleft())
            else:
                if engine is None:
                    self._load(node, self.models[first.model])
                return

    def _grant(self, node: _Node, engine: _Engine, arrival: VirtualRequest) -> None:
        now = self.clock.now
        engine.running.add(arrival.number)
        engine.last_use = now
        self._streams += 1
        self.tally.granted(arrival.key, now - arrival.at, self._streams)
        times = stream_times(arrival.prompt, arrival.tokens, len(engine.running))
        self.clock.after(times.end, partial(self._end, node, engine, arrival, "answered"))

    def _end(self, node: _Node, engine: _Engine, arrival: VirtualRequest, how: str) -> None:
        if arrival.number in engine.running:
            engine.running.discard(arrival.number)
            self._streams -= 1
            self.tally.ended(arrival.number, how)
            self._serve(node)

    def _hang_up(self, node: _Node, arrival: VirtualRequest) -> None:
        if arrival.number in self.tally.open:
            engine = node.engines.get(arrival.model)
            if engine is not None and arrival.number in engine.running:
                self._end(node, engine, arrival, "cancelled")
            else:
                self.tally.ended(arrival.number, "cancelled")
                self._serve(node)

    def _load(self, node: _Node, model: VirtualModel) -> None:
        """Start an engine if there is memory, else end the least recently used one that is idle, else wait."""
        if self._fits(node, model):
            engine = node.engines[model.name] = _Engine(model)
            self._loads += 1
            self.clock.after(model.load_s, partial(self._become_ready, node, engine))
            return
        if any(engine.leaving for engine in node.engines.values()):
            return
        idle = [engine for engine in node.engines.values() if engine.ready and not engine.running]
        if idle:
            engine = min(idle, key=lambda engine: engine.last_use)
            engine.leaving = True
            self._evictions += 1
            self.clock.after(LEAVE_S, partial(self._leave, node, engine))

    def _become_ready(self, node: _Node, engine: _Engine) -> None:
        engine.ready, engine.last_use = True, self.clock.now
        self._serve(node)

    def _leave(self, node: _Node, engine: _Engine) -> None:
        del node.engines[engine.model.name]
        self._serve(node)
