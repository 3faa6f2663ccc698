"""What a simulated day shows: waits, ends, fairness, and the scheduler's own time."""

from __future__ import annotations

import gc
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from tests.benchmarks.measuring import percentile
from tests.simulation.traffic import BURST_KEY


class Waits(msgspec.Struct, frozen=True):
    """Seconds from a request's arrival to its grant."""

    median: float = 0.0
    p99: float = 0.0
    worst: float = 0.0

    @classmethod
    def of(cls, seconds: list[float]) -> Waits:
        """Return those of these waits."""
        return cls(percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds)) if seconds else cls()


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


class SchedulerCost(msgspec.Struct):
    """The processor time of a scheduler, by kind of event."""

    events: dict[str, int] = {}
    seconds: dict[str, float] = {}
    memory: int = 0
    """Bytes of its state, at the peak."""

    @property
    def total(self) -> float:
        """Seconds for all events."""
        return sum(self.seconds.values())

    @property
    def per_event(self) -> float:
        """Seconds for one event."""
        return self.total / max(1, sum(self.events.values()))


class Stopwatch:
    """Measures processor time of this thread: another process on the machine takes none of it."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def event(self, kind: str) -> Iterator[None]:
        """Count what is done inside as one event of this kind."""
        begun = time.thread_time()
        yield
        self.seconds[kind] += time.thread_time() - begun
        self.events[kind] += 1

    def cost(self) -> SchedulerCost:
        """Return what was measured."""
        return SchedulerCost(dict(self.events), dict(self.seconds))


class RequestTally:
    """What has happened to requests so far."""

    def __init__(self) -> None:
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        self.ends: Counter[str] = Counter()
        self.open: dict[int, str] = {}
        """Request → its key, for requests that have not ended."""
        self.most_streams = 0

    def arrived(self, number: int, key: str) -> None:
        """A request has come."""
        assert number not in self.open
        self.open[number] = key

    def granted(self, key: str, waited: float, streams: int) -> None:
        """An attempt has got its slot, and this many run now."""
        self.waits[key].append(waited)
        self.most_streams = max(self.most_streams, streams)

    def ended(self, number: int, how: str) -> None:
        """A request has got its answer, or its client is gone."""
        del self.open[number]  # raises if it was answered before
        self.ends[how] += 1

    def result(self, policy: str, *, loads: int, evictions: int, simulated_s: float) -> DayResult:
        """Return the figures of the day."""
        steady = {key: waits for key, waits in self.waits.items() if key != BURST_KEY}
        waits = [each for own in self.waits.values() for each in own]
        return DayResult(
            policy,
            requests=sum(self.ends.values()),
            grants=len(waits),
            most_streams=self.most_streams,
            ends=dict(sorted(self.ends.items())),
            waits=Waits.of(waits),
            steady=Waits.of([each for own in steady.values() for each in own]),
            bursts=Waits.of(self.waits.get(BURST_KEY, [])),
            fairness=jain(sum(own) / len(own) for own in steady.values()),
            loads=loads,
            evictions=evictions,
            simulated_s=simulated_s,
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
