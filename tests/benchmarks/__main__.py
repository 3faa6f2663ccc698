"""``python -m tests.benchmarks``: measures lemonbus beside the engine alone, prints tables and writes JSON.

``--rounds`` and ``--turns`` say how often; ``--json FILE`` where the figures go; ``--check`` exits 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.benchmarks import footprint, latencies, one_token, throughput
from tests.benchmarks.report import BenchmarkReport, machine


def main() -> int:
    """Measure everything; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure against the engine alone.")
    parser.add_argument("--rounds", type=int, default=8, help="alternations of direct and through lemonbus")
    parser.add_argument("--turns", type=int, default=7, help="repetitions of swaps, crashes and hang-ups")
    parser.add_argument("--json", type=Path, default=Path("build/benchmark.json"), help="where the figures go")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    asked = parser.parse_args()

    def step(what: str) -> None:
        print(f"… {what}", file=sys.stderr, flush=True)

    step("streams and small requests")
    comparisons = throughput.measure(asked.rounds)
    step("swaps, crashes, hang-ups")
    single = latencies.measure(asked.turns)
    step("one-token answers and embeddings")
    harshest = one_token.measure(asked.rounds)
    step("memory")
    report = BenchmarkReport(machine(), comparisons, harshest, single, footprint.measure())
    print(report.markdown())
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_bytes(report.json())
    return int(asked.check and any(goal.mark == "✗" for goal in report.goals))


if __name__ == "__main__":
    sys.exit(main())
