"""What a simulated day shows: waits, ends, fairness, and the scheduler's own time."""

from __future__ import annotations

import gc
import math
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from tests.simulation.traffic import BURST_KEY

SETTLED: Final = "settled"
"""Added to a kind of event for those after which nothing waits or changes its state, so that nothing is to be decided."""
_SHORTEST_S: Final = 0.001
"""Shorter waits count as none."""
_STEP: Final = math.log(1.02)


class Waits(msgspec.Struct, frozen=True):
    """Seconds from a request's arrival to its grant."""

    median: float = 0.0
    p99: float = 0.0
    worst: float = 0.0


class WaitCounts:
    """How many waits were how long, to 2 %: the waits of a day are too many to be kept."""

    def __init__(self) -> None:
        self.number, self.total, self.worst = 0, 0.0, 0.0
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a wait."""
        self.number += 1
        self.total += seconds
        if seconds >= _SHORTEST_S:
            self._counts[int(math.log(seconds / _SHORTEST_S) / _STEP) + 1] += 1
            self.worst = max(self.worst, seconds)
        else:
            self._counts[0] += 1

    def include(self, others: Iterable[WaitCounts]) -> WaitCounts:
        """Add what others have counted."""
        for other in others:
            self.number += other.number
            self.total += other.total
            self.worst = max(self.worst, other.worst)
            self._counts.update(other._counts)
        return self

    def waits(self) -> Waits:
        """Return the figures."""
        return Waits(self._percentile(0.5), self._percentile(0.99), self.worst)

    def _percentile(self, part: float) -> float:
        rest = int(part * self.number)
        for step, count in sorted(self._counts.items()):
            if rest < count:
                return min(self.worst, _SHORTEST_S * math.exp((step - 0.5) * _STEP)) if step else 0.0
            rest -= count
        return self.worst


class HourResult(msgspec.Struct, frozen=True):
    """A part of a day."""

    until: float
    """Simulated seconds since the beginning."""
    requests: int
    grants: int
    streams: int
    """At its end."""
    waits: Waits
    loads: int
    evictions: int
    scheduler: float
    """Seconds of processor time."""
    simulation: float
    """The same for everything, the scheduler included."""


class DayResult(msgspec.Struct):
    """One day through one policy."""

    policy: str
    requests: int = 0
    grants: int = 0
    most_streams: int = 0
    ends: dict[str, int] = {}
    """How requests ended → how many."""
    waits: Waits = Waits()
    steady: Waits = Waits()
    """Those of keys without bursts."""
    bursts: Waits = Waits()
    fairness: float = 0.0
    """Jain's index of the mean waits of the steady keys: 1 if all wait equally long."""
    loads: int = 0
    evictions: int = 0
    simulated_s: float = 0.0
    hours: list[HourResult] = []


class SchedulerCost(msgspec.Struct):
    """The processor time of a scheduler, by kind of event."""

    events: dict[str, int] = {}
    seconds: dict[str, float] = {}
    memory: int = 0
    """Bytes of its state, in the middle."""
    first_loads: int = 0
    """Models that were loaded before the first request; nothing else counts them."""
    first_seconds: float = 0.0
    """For these."""

    @property
    def total(self) -> float:
        """Seconds for all events."""
        return sum(self.seconds.values())


class Stopwatch:
    """Adds up processor time of the scheduler's thread: another process on the machine takes none of it."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, kind: str, seconds: float) -> None:
        """Count an event of this kind."""
        self.seconds[kind] += seconds
        self.events[kind] += 1

    @property
    def total(self) -> float:
        """Seconds for all events."""
        return sum(self.seconds.values())

    def cost(self) -> SchedulerCost:
        """Return what was measured."""
        return SchedulerCost(dict(self.events), dict(self.seconds))


class RequestTally:
    """What has happened to requests so far."""

    def __init__(self) -> None:
        self.waits: defaultdict[str, WaitCounts] = defaultdict(WaitCounts)
        self.hour = WaitCounts()
        """Those since the last :meth:`end_hour`."""
        self.hours: list[HourResult] = []
        self.arrivals = 0
        self._before = HourResult(0.0, 0, 0, 0, Waits(), 0, 0, 0.0, time.thread_time())
        """The sums at the last one."""
        self.ends: Counter[str] = Counter()
        self.open: dict[int, str] = {}
        """Request → its key, for requests that have not ended."""
        self.most_streams = 0

    def arrived(self, number: int, key: str) -> None:
        """A request has come."""
        assert number not in self.open
        self.open[number] = key
        self.arrivals += 1

    def granted(self, key: str, waited: float, streams: int) -> None:
        """An attempt has got its slot, and this many run now."""
        self.waits[key].add(waited)
        self.hour.add(waited)
        self.most_streams = max(self.most_streams, streams)

    def ended(self, number: int, how: str) -> None:
        """A request has got its answer, or its client is gone."""
        del self.open[number]  # raises if it was answered before
        self.ends[how] += 1

    def end_hour(self, until: float, streams: int, loads: int, evictions: int, scheduler: float = 0.0) -> HourResult:
        """Note what has happened since the last call. All figures are sums from the beginning."""
        before, now = self._before, time.thread_time()
        hour = HourResult(
            until,
            self.arrivals - before.requests,
            self.hour.number,
            streams,
            self.hour.waits(),
            loads - before.loads,
            evictions - before.evictions,
            scheduler - before.scheduler,
            now - before.simulation,
        )
        self._before = HourResult(until, self.arrivals, 0, streams, Waits(), loads, evictions, scheduler, now)
        self.hour = WaitCounts()
        self.hours.append(hour)
        return hour

    def result(self, policy: str, *, loads: int, evictions: int, simulated_s: float) -> DayResult:
        """Return the figures of the day."""
        steady = [waits for key, waits in self.waits.items() if key != BURST_KEY]
        every = WaitCounts().include(self.waits.values())
        return DayResult(
            policy,
            requests=sum(self.ends.values()),
            grants=every.number,
            most_streams=self.most_streams,
            ends=dict(sorted(self.ends.items())),
            waits=every.waits(),
            steady=WaitCounts().include(steady).waits(),
            bursts=self.waits[BURST_KEY].waits(),
            fairness=jain(own.total / own.number for own in steady),
            loads=loads,
            evictions=evictions,
            simulated_s=simulated_s,
            hours=self.hours,
        )


def jain(values: Iterable[float]) -> float:
    """Return Jain's fairness index of some values: 1 if all are equal, 1/n if one has everything."""
    each = list(values)
    squares = sum(value * value for value in each)
    return sum(each) ** 2 / (len(each) * squares) if squares else 1.0


def size_of(root: object) -> int:
    """Return the bytes of everything that can be reached from an object, except code and classes."""
    seen: dict[int, object] = {}
    found, total = [root], 0
    while found:
        each = found.pop()
        if id(each) not in seen and not isinstance(
            each, type | types.ModuleType | types.FunctionType | types.MethodType
        ):
            seen[id(each)] = each
            total += sys.getsizeof(each)
            found += gc.get_referents(each)
    return total
