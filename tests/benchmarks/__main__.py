"""``python -m tests.benchmarks [PART …]``: measures lemonbus against the engine alone, prints tables and writes JSON.

Without a part: all of them. ``--rounds`` and ``--turns`` say how often. ``--json FILE`` says where the figures go.
``--check`` exits 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.benchmarks import (
    bus_transports,
    dialects,
    embeddings,
    footprint,
    latencies,
    memory_estimates,
    mixed,
    node_loss,
    nodes,
    one_token,
    open_page,
    processor_time,
    prompt_cache,
    recovery,
    throughput,
)
from tests.benchmarks.report import BenchmarkReport, machine

PARTS: Final = {
    "throughput": "streams and small requests",
    "latencies": "swaps, crashes, hang-ups",
    "one-token": "one-token answers and embeddings",
    "embeddings": "embeddings of a larger model",
    "dialects": "streams of each dialect",
    "processor-time": "processor time of small requests, with and without keys",
    "prompt-cache": "conversations that go on after a swap",
    "mixed": "a trace of requests for more models than fit, beside first come, first served",
    "recovery": "supervisors that are killed",
    "open-page": "what an open page costs",
    "nodes": "a model on this machine, and on other nodes",
    "node-loss": "nodes that are lost",
    "transports": "tokens on ipc, and on tcp with CURVE",
    "memory": "memory",
    "memory-estimates": "what engines take, beside the estimate",
}


def main() -> int:
    """Measure the requested parts; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure against the engine alone.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all without any")
    parser.add_argument("--rounds", type=int, default=8, help="how often the compared servers alternate")
    parser.add_argument("--turns", type=int, default=7, help="repetitions of swaps, crashes and hang-ups")
    parser.add_argument(
        "--model",
        type=Path,
        help="a GGUF file for the part prompt-cache, mixed or embeddings; a folder for memory-estimates",
    )
    parser.add_argument("--json", type=Path, default=Path("build/benchmark.json"), help="where the figures go")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - PARTS.keys():
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    report = BenchmarkReport(machine())
    for part, what in PARTS.items():
        if asked.parts and part not in asked.parts:
            continue
        print(f"… {what}", file=sys.stderr, flush=True)
        _measure(report, part, asked.rounds, asked.turns, asked.model)
    print(report.markdown())
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_bytes(report.json())
    return int(asked.check and any(goal.mark == "✗" for goal in report.goals))


def _measure(  # noqa: C901, PLR0912 - one case for each part
    report: BenchmarkReport, part: str, rounds: int, turns: int, model: Path | None
) -> None:
    match part:
        case "throughput":
            report.comparisons = throughput.measure(rounds)
        case "latencies":
            report.latencies = latencies.measure(turns)
        case "one-token":
            report.one_token = one_token.measure(rounds)
        case "embeddings":
            report.embeddings = embeddings.measure(rounds, model)
        case "dialects":
            report.dialects = dialects.measure(rounds)
        case "processor-time":
            report.processor_time = processor_time.measure(rounds)
        case "prompt-cache":
            report.prompt_caches = prompt_cache.measure(min(turns, 3), model)
        case "mixed":
            report.mixed = mixed.measure(min(rounds, 3), model)
        case "recovery":
            report.recovery = recovery.measure(50)
        case "memory-estimates":
            report.memory_estimates = memory_estimates.measure(model if model is not None and model.is_dir() else None)
        case "open-page":
            report.open_page = open_page.measure(min(rounds, 6))
        case "nodes":
            report.nodes = nodes.measure(rounds)
        case "node-loss":
            report.node_loss = node_loss.measure(min(rounds, 5))
        case "transports":
            report.transports = bus_transports.measure(rounds)
        case "memory":
            report.footprint = footprint.measure()


if __name__ == "__main__":
    sys.exit(main())
