"""The benchmark's tables, as markdown, and its figures, as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable

import msgspec

from tests.benchmarks.footprint import Footprint
from tests.benchmarks.goals import Goal, evaluate_goals
from tests.benchmarks.latencies import Latencies
from tests.benchmarks.one_token import OneTokenComparison
from tests.benchmarks.throughput import Comparison, Ratio

Rows = Iterable[Iterable[object]]


class BenchmarkReport(msgspec.Struct):
    """Everything that was measured."""

    machine: str
    comparisons: list[Comparison]
    one_token: list[OneTokenComparison]
    latencies: Latencies
    footprint: Footprint

    @property
    def goals(self) -> list[Goal]:
        return evaluate_goals(self.comparisons, self.one_token, self.latencies, self.footprint)

    def json(self) -> bytes:
        """Return the figures and the judgement."""
        judgement = [{**goal._asdict(), "mark": goal.mark} for goal in self.goals]
        figures = {**msgspec.structs.asdict(self), "goals": judgement}
        return msgspec.json.format(msgspec.json.encode(figures), indent=2)

    def markdown(self) -> str:
        """Return the tables."""
        parts = [
            f"Measured on {self.machine}. Streams of 256 tokens, small requests of 8; a new connection each.",
            _table(("clients", "", *_COLUMNS), _throughput_table(self.comparisons)),
            "Answers of one token, and embeddings; a new connection each, and engines that were not warmed.",
            _table(
                ("clients", "", "first token p50/p99 ms", "chats/s", "embeddings/s"), _one_token_rows(self.one_token)
            ),
            _table(("moment", "ms"), _latency_rows(self.latencies)),
            _table(("process", "PSS, MB"), _footprint(self.footprint)),
            _table(
                ("goal", "figure", "to reach", "further", ""),
                [(g.what, f"{_number(g.value)} {g.unit}", _number(g.now), _number(g.next), g.mark) for g in self.goals],
            ),
        ]
        return "\n\n".join(parts) + "\n"


_COLUMNS = (
    "first token p50/p99 ms",
    "inter-token p50/p99 ms",
    "pieces/token",
    "tokens/s",
    "small/s",
    "small p50/p99 ms",
)


def machine() -> str:
    """Name what it was measured on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _throughput_table(comparisons: list[Comparison]) -> Rows:
    for comparison in comparisons:
        sides = (
            ("direct", comparison.direct),
            ("direct, the worker's policy", comparison.direct_with_policy),
            ("lemonbus", comparison.lemonbus),
        )
        for name, side in sides:
            yield (
                comparison.clients,
                name,
                f"{_number(side.first_p50)} / {_number(side.first_p99)}",
                f"{_number(side.gap_p50)} / {_number(side.gap_p99)}",
                _number(side.pieces_per_token),
                _number(side.tokens_per_s),
                _number(side.small_per_s),
                f"{_number(side.small_p50)} / {_number(side.small_p99)}",
            )
        yield _ratio("**to direct**", comparison.ratio)
        yield _ratio("to the same policy", comparison.overhead)


def _ratio(name: str, ratio: Ratio) -> Iterable[object]:
    return "", name, f"{ratio.first:+.2f} ms", "", "", _number(ratio.tokens), _number(ratio.small), ""


def _one_token_rows(comparisons: list[OneTokenComparison]) -> Rows:
    for comparison in comparisons:
        for name, side in (("direct", comparison.direct), ("lemonbus", comparison.lemonbus)):
            first = f"{_number(side.first_p50)} / {_number(side.first_p99)}"
            yield comparison.clients, name, first, _number(side.chat_per_s), _number(side.embeddings_per_s)
        ratios = _number(comparison.chat), _number(comparison.embeddings)
        yield "", "**to direct**", f"{comparison.first:+.2f} ms", *ratios


def _latency_rows(latencies: Latencies) -> Rows:
    yield "swap: POST to first byte", _number(latencies.swap)
    yield "the engine's own start", _number(latencies.engine_start)
    yield "health during swaps, p99 / worst", f"{_number(latencies.health_p99)} / {_number(latencies.health_worst)}"
    yield "crash to noticed", _number(latencies.crash_noticed)
    yield "crash to told", _number(latencies.crash_reported)
    yield "crash to ready again", _number(latencies.crash_ready)
    yield "hang-up to idle, decoding", _number(latencies.hang_up_decoding)
    yield "hang-up to idle, prefill of 3,000 tokens", _number(latencies.hang_up_prefill)


def _footprint(footprint: Footprint) -> Rows:
    yield "supervisor", footprint.supervisor
    yield "gateway, all processes", _number(footprint.gateway)
    yield f"worker, median of {len(footprint.workers)}", footprint.worker
    yield "spare worker", footprint.spare
    yield "engine (not ours)", footprint.engine


def _table(head: Iterable[str], rows: Rows) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
