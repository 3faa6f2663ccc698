"""``python -m tests.simulation [day] [growth]``: simulates clusters, prints tables and writes JSON.

Without a part: both. ``--workers`` and ``--streams`` say how large the day's cluster is, and ``--begin`` and ``--end`` which hours of
the day are simulated: all of them take hours. What each hour has shown is noted in ``FILE.hours`` at once. ``--numbers`` says with
how many workers the growth is measured. ``--json FILE`` says where the figures go.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from protocol.runtime.memory import tune_gc
from tests.benchmarks.report import machine
from tests.simulation import growth
from tests.simulation.first_come import FirstComeCluster
from tests.simulation.measures import HourResult
from tests.simulation.report import SimulationReport
from tests.simulation.scheduled_cluster import ScheduledCluster
from tests.simulation.traffic import Traffic
from tests.simulation.virtual_parts import ClusterSize, Faults

PARTS = ("day", "growth")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate a day on a cluster.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; both without any")
    parser.add_argument("--workers", type=int, default=2000, help="workers of the day's cluster, ten on each node")
    parser.add_argument("--streams", type=int, default=50_000, help="concurrent streams at the peak of the day")
    parser.add_argument("--day", type=float, default=86_400.0, help="seconds of the day; the peak is in its middle")
    parser.add_argument("--begin", type=float, default=0.0, help="the first hour that is simulated, of 24")
    parser.add_argument("--end", type=float, default=24.0, help="the hour at which that ends")
    parser.add_argument("--hour", type=float, default=3600.0, help="simulated seconds between two notes")
    parser.add_argument("--numbers", default="100,500,1000,2000", help="workers, for the growth")
    parser.add_argument("--growth-day", type=float, default=60.0, help="seconds of each day of the growth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("build/simulation.json"), help="where the figures go")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    tune_gc()  # as the supervisor does
    report = SimulationReport(machine())
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    if not asked.parts or "day" in asked.parts:
        traffic, size, faults = growth.cluster(asked.workers, asked.streams, asked.day, asked.seed)
        traffic = traffic._replace(begin=asked.begin / 24, end=asked.end / 24)
        with asked.json.with_suffix(".hours").open("wb", buffering=0) as hours:
            _day(report, traffic, size, faults, asked.hour, hours)
    if not asked.parts or "growth" in asked.parts:
        numbers = [int(number) for number in asked.numbers.split(",")]
        report.growth = growth.measure(numbers, asked.growth_day, asked.seed, _note)
    print(report.markdown())
    asked.json.write_bytes(report.json())
    return 0


def _day(
    report: SimulationReport, traffic: Traffic, size: ClusterSize, faults: Faults, hour: float, hours: BinaryIO
) -> None:
    def note(policy: str, done: HourResult) -> None:
        hours.write(msgspec.json.encode((policy, done)) + b"\n")
        _note(f"{policy}: {done.until:,.0f} s, {done.requests:,} requests, worst wait {done.waits.worst:.1f} s")

    report.cluster = (
        f"{size.nodes} nodes, {size.workers:,} workers, {len(traffic.models):,} models, about {traffic.streams:,} streams at the"
        f" peak of a day of {traffic.day:g} s; {traffic.begin * 24:g} to {traffic.end * 24:g} o'clock of it; an engine dies every"
        f" {faults.engine_death:g} s, and a node every {faults.node_loss:g} s"
    )
    _note(report.cluster)
    lemonbus, report.cost = ScheduledCluster(traffic, size, faults).run(hour, partial(note, "lemonbus"))
    first_come = FirstComeCluster(traffic, size).run(hour, partial(note, "first come, first served"))
    report.days = [lemonbus, first_come]


def _note(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
