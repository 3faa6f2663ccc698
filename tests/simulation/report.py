"""The tables of a simulation, as markdown, and its figures, as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tests.simulation.growth import Growth
from tests.simulation.measures import SETTLED, DayResult, SchedulerCost, Waits

KINDS: Final = (f"submit, {SETTLED}", "submit", f"end, {SETTLED}", "end", "worker", "node", "tick")


class SimulationReport(msgspec.Struct):
    """Everything that was simulated; parts that were not requested are empty."""

    machine: str
    cluster: str = ""
    days: list[DayResult] = []
    cost: SchedulerCost | None = None
    growth: list[Growth] = []

    def json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self))

    def markdown(self) -> str:
        return "\n".join([self.machine, *self._day(), *self._growth()])

    def _day(self) -> Iterator[str]:
        if not self.days or self.cost is None:
            return
        cost, first = self.cost, self.days[0]
        yield f"\n{self.cluster}\n"
        yield from _table(
            ("", *(day.policy for day in self.days)),
            (
                ("requests", *(f"{day.requests:,}" for day in self.days)),
                ("most streams at once", *(f"{day.most_streams:,}" for day in self.days)),
                ("wait, median; p99; worst", *(_waits(day.waits) for day in self.days)),
                ("the same for keys without bursts", *(_waits(day.steady) for day in self.days)),
                ("the same for the key with bursts", *(_waits(day.bursts) for day in self.days)),
                ("fairness between keys without bursts", *(f"{day.fairness:.3f}" for day in self.days)),
                ("loads; evictions", *(f"{day.loads:,}; {day.evictions:,}" for day in self.days)),
                *((f"{how}", *(f"{day.ends.get(how, 0):,}" for day in self.days)) for how in _ends(self.days)),
            ),
        )
        yield "\nThe scheduler:\n"
        yield from _table(
            ("", ""),
            (
                ("processor time per request", _time(cost.total / max(1, first.requests))),
                ("grants a second of processor time", f"{first.grants / cost.total:,.0f}"),
                ("the processor, in use", f"{100 * cost.total / first.simulated_s:.0f} %"),
                *((f"one event: {kind}", _time(cost.seconds[kind] / cost.events[kind])) for kind in _known(cost)),
                ("one of the first loads", _time(cost.first_seconds / max(1, cost.first_loads))),
                ("memory of its state", f"{cost.memory / 1e6:.0f} MB"),
            ),
        )

    def _growth(self) -> Iterator[str]:
        if not self.growth:
            return
        first = self.growth[0]
        yield "\nMore and more workers, each with the same load; processor time of one event:\n"
        yield from _table(
            ("workers", "models", "requests", *KINDS, "one of the first loads", "all of a request", "growth", "log n"),
            (
                (
                    f"{each.workers:,}",
                    f"{each.models:,}",
                    f"{each.requests:,}",
                    *(
                        _time(each.cost.seconds.get(kind, 0.0) / max(1, each.cost.events.get(kind, 0)))
                        for kind in KINDS
                    ),
                    _time(each.cost.first_seconds / max(1, each.cost.first_loads)),
                    _time(each.cost.total / each.requests),
                    f"{each.cost.total / each.requests / (first.cost.total / first.requests):.2f}",
                    f"{math.log(each.workers) / math.log(first.workers):.2f}",
                )
                for each in self.growth
            ),
        )


def _known(cost: SchedulerCost) -> list[str]:
    return [kind for kind in KINDS if cost.events.get(kind)]


def _ends(days: Iterable[DayResult]) -> list[str]:
    return sorted({how for day in days for how in day.ends})


def _waits(waits: Waits) -> str:
    return f"{waits.median:.2f} s; {waits.p99:.2f} s; {waits.worst:.1f} s"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    titles = list(head)
    yield f"| {' | '.join(map(str, titles))} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
