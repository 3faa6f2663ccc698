"""``python -m tests.simulation [day] [growth]``: simulates clusters, prints tables and writes JSON.

Without a part: both. ``--workers``, ``--streams`` and ``--day`` say how large the day's cluster is, and for how many seconds
its traffic lasts; ``--numbers`` with how many workers the growth is measured. ``--json FILE`` says where the figures go.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.benchmarks.report import machine
from tests.simulation import growth
from tests.simulation.first_come import FirstComeCluster
from tests.simulation.report import SimulationReport
from tests.simulation.scheduled_cluster import ScheduledCluster

PARTS = ("day", "growth")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate a day on a cluster.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; both without any")
    parser.add_argument("--workers", type=int, default=2000, help="workers of the day's cluster, ten on each node")
    parser.add_argument("--streams", type=int, default=50_000, help="concurrent streams at the peak of the day")
    parser.add_argument("--day", type=float, default=240.0, help="seconds of the day")
    parser.add_argument("--numbers", default="50,100,200,400,800", help="workers, for the growth")
    parser.add_argument("--growth-day", type=float, default=30.0, help="seconds of each day of the growth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("build/simulation.json"), help="where the figures go")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    report = SimulationReport(machine())
    if not asked.parts or "day" in asked.parts:
        _day(report, asked.workers, asked.streams, asked.day, asked.seed)
    if not asked.parts or "growth" in asked.parts:
        numbers = [int(number) for number in asked.numbers.split(",")]
        report.growth = growth.measure(numbers, asked.growth_day, asked.seed, _note)
    print(report.markdown())
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_bytes(report.json())
    return 0


def _day(report: SimulationReport, workers: int, streams: int, day: float, seed: int) -> None:
    traffic, size, faults = growth.cluster(workers, streams, day, seed)
    report.cluster = (
        f"{size.nodes} nodes, {size.workers:,} workers, {len(traffic.models):,} models, about {streams:,} streams at"
        f" the peak of a day of {day:g} s; an engine dies every {faults.engine_death:g} s, and a node every {faults.node_loss:g} s"
    )
    _note(report.cluster)
    lemonbus, report.cost = ScheduledCluster(traffic, size, faults).run()
    _note(FirstComeCluster.__name__)
    report.days = [lemonbus, FirstComeCluster(traffic, size).run()]


def _note(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
