"""The benchmark's tables, as markdown, and its figures, as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable

import msgspec

from tests.benchmarks.footprint import Footprint
from tests.benchmarks.goals import Goal, judged
from tests.benchmarks.moments import Moments
from tests.benchmarks.throughput import Ratio, Trio

Rows = Iterable[Iterable[object]]


class Report(msgspec.Struct):
    """Everything that was measured."""

    machine: str
    trios: list[Trio]
    moments: Moments
    footprint: Footprint

    @property
    def goals(self) -> list[Goal]:
        return judged(self.trios, self.moments, self.footprint)

    def json(self) -> bytes:
        """Return the figures and the judgement."""
        judgement = [{**goal._asdict(), "mark": goal.mark} for goal in self.goals]
        figures = {**msgspec.structs.asdict(self), "goals": judgement}
        return msgspec.json.format(msgspec.json.encode(figures), indent=2)

    def markdown(self) -> str:
        """Return the tables."""
        parts = [
            f"Measured on {self.machine}. Streams of 256 tokens, small requests of 8; a new connection each.",
            _table(("clients", "", *_COLUMNS), _throughput(self.trios)),
            _table(("moment", "ms"), _moments(self.moments)),
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


def _throughput(trios: list[Trio]) -> Rows:
    for trio in trios:
        sides = ("direct", trio.direct), ("direct, the worker's policy", trio.alike), ("lemonbus", trio.lemonbus)
        for name, side in sides:
            yield (
                trio.clients,
                name,
                f"{_number(side.first_p50)} / {_number(side.first_p99)}",
                f"{_number(side.gap_p50)} / {_number(side.gap_p99)}",
                _number(side.pieces_per_token),
                _number(side.tokens_per_s),
                _number(side.small_per_s),
                f"{_number(side.small_p50)} / {_number(side.small_p99)}",
            )
        yield _ratio("**to direct**", trio.ratio)
        yield _ratio("to the same policy", trio.way)


def _ratio(name: str, ratio: Ratio) -> Iterable[object]:
    return "", name, f"{ratio.first:+.2f} ms", "", "", _number(ratio.tokens), _number(ratio.small), ""


def _moments(moments: Moments) -> Rows:
    yield "swap: POST to first byte", _number(moments.swap)
    yield "the engine's own start", _number(moments.engine_start)
    yield "health during swaps, p99 / worst", f"{_number(moments.health_p99)} / {_number(moments.health_worst)}"
    yield "crash to noticed", _number(moments.crash_noticed)
    yield "crash to told", _number(moments.crash_told)
    yield "crash to ready again", _number(moments.crash_ready)
    yield "hang-up to idle, decoding", _number(moments.hang_up_decoding)
    yield "hang-up to idle, prefill of 3,000 tokens", _number(moments.hang_up_prefill)


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
