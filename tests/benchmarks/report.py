"""The benchmark's tables, as markdown, and its figures, as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator

import msgspec

from tests.benchmarks.bus_transports import TransportCost
from tests.benchmarks.dialects import DialectComparison
from tests.benchmarks.embeddings import EmbeddingComparison
from tests.benchmarks.footprint import Footprint
from tests.benchmarks.goals import (
    Goal,
    broken_answers,
    dialect_goals,
    embedding_goals,
    footprint_goals,
    key_goals,
    latency_goals,
    memory_goals,
    mixed_goals,
    one_token_goals,
    open_page_goals,
    prompt_cache_goals,
    recovery_goals,
    throughput_goals,
)
from tests.benchmarks.latencies import Latencies
from tests.benchmarks.measuring import Spread, spread
from tests.benchmarks.memory_estimates import MemoryComparison
from tests.benchmarks.mixed import MODELS, RATE, TOKENS, MixedComparison
from tests.benchmarks.nodes import NodeComparison
from tests.benchmarks.one_token import OneTokenComparison
from tests.benchmarks.open_page import OpenPageCost
from tests.benchmarks.processor_time import ProcessorTime
from tests.benchmarks.prompt_cache import PromptCacheResult
from tests.benchmarks.recovery import RecoveryTimes
from tests.benchmarks.throughput import Comparison, Ratio

Rows = Iterable[Iterable[object]]


class BenchmarkReport(msgspec.Struct):
    """Everything that was measured; parts that were not requested are empty."""

    machine: str
    comparisons: list[Comparison] = []
    latencies: Latencies | None = None
    one_token: list[OneTokenComparison] = []
    embeddings: list[EmbeddingComparison] = []
    dialects: list[DialectComparison] = []
    processor_time: list[ProcessorTime] = []
    prompt_caches: list[PromptCacheResult] = []
    mixed: list[MixedComparison] = []
    recovery: RecoveryTimes | None = None
    open_page: list[OpenPageCost] = []
    nodes: list[NodeComparison] = []
    transports: list[TransportCost] = []
    footprint: Footprint | None = None
    memory_estimates: list[MemoryComparison] = []

    @property
    def goals(self) -> list[Goal]:
        return [
            *throughput_goals(self.comparisons),
            *one_token_goals(self.one_token),
            *embedding_goals(self.embeddings),
            *dialect_goals(self.dialects),
            *key_goals(self.processor_time),
            *(latency_goals(self.latencies) if self.latencies else ()),
            *prompt_cache_goals(self.prompt_caches),
            *mixed_goals(self.mixed),
            *(recovery_goals(self.recovery) if self.recovery else ()),
            *open_page_goals(self.open_page),
            *(footprint_goals(self.footprint) if self.footprint else ()),
            *memory_goals(self.memory_estimates),
            broken_answers(self.comparisons, self.one_token, self.embeddings, self.dialects),
        ]

    def json(self) -> bytes:
        """Return the figures and the judgement."""
        judgement = [{**goal._asdict(), "mark": goal.mark} for goal in self.goals]
        figures = {**msgspec.structs.asdict(self), "goals": judgement}
        return msgspec.json.format(msgspec.json.encode(figures), indent=2)

    def markdown(self) -> str:
        """Return the tables."""
        parts = [f"Measured on {self.machine}. A new connection for each request."]
        if self.comparisons:
            parts += [
                "Streams of 256 tokens, small requests of 8.",
                _table(("clients", "", *_COLUMNS), _throughput_table(self.comparisons)),
            ]
        if self.one_token:
            parts += [
                "Answers of one token, and embeddings; medians and ranges of the rounds.",
                _table(
                    ("slots of the engine", "clients", "", "first token p50/p99 ms", "chats/s", "embeddings/s"),
                    _one_token_rows(self.one_token),
                ),
            ]
        if self.embeddings:
            parts += [
                "Embeddings of a text of 16 tokens; medians and ranges of the rounds. Processor time of a request, µs.",
                _table(
                    ("clients", "direct/s", "lemonbus/s", "**to direct**", "ours", "engine"),
                    _embedding_rows(self.embeddings),
                ),
            ]
        if self.dialects:
            parts += [
                "Streams of 256 tokens beside those of chat/completions; medians and ranges of the rounds.",
                _table(
                    ("dialect", "clients", "first token", "tokens/s", "", "gateway µs/token (chat)"),
                    _dialect_rows(self.dialects),
                ),
            ]
        if self.processor_time:
            parts += [
                "Processor time of a request, µs.",
                _table(
                    ("request", "clients", "caller", "gateway", "supervisor", "worker", "ours", "engine", "requests/s"),
                    _processor_rows(self.processor_time),
                ),
            ]
        if self.latencies:
            parts.append(_table(("moment", "ms"), _latency_rows(self.latencies)))
        if self.prompt_caches:
            parts.append("A conversation of 3,000 tokens; another model is loaded between its turns.")
            parts.append(_table(_CACHE_COLUMNS, _prompt_cache_rows(self.prompt_caches)))
        parts += _mixed_section(self.mixed)
        if self.recovery:
            parts.append(_table(("a supervisor is killed", ""), _recovery_rows(self.recovery)))
        parts += self._memory()
        judged = [(g.what, f"{_number(g.value)} {g.unit}", _number(g.now), _number(g.next), g.mark) for g in self.goals]
        parts.append(_table(("goal", "figure", "to reach", "further", ""), judged))
        return "\n\n".join(parts) + "\n"

    def _memory(self) -> Iterator[str]:
        if self.open_page:
            yield "What open pages add to the processor time of supervisor and gateways, percent of one processor."
            yield _table(("server", "without", "one page", "ten pages"), [each.row() for each in self.open_page])
        if self.nodes:
            yield "One model on this machine and on other nodes; medians and ranges. Processor time without engines, µs."
            yield _table(
                ("", "first token ms", "small/s", "µs each", "tokens/s", "µs each"),
                [row for each in self.nodes for row in each.rows()],
            )
        if self.transports:
            yield "A token between worker and gateway: µs on the way, and µs of processor time of both. One stream."
            yield _table(("transport", "way p50", "way p99", "worker", "gateway"), [it.row() for it in self.transports])
        if self.footprint:
            yield _table(("process", "PSS, MB"), self.footprint.rows())
        if self.memory_estimates:
            head = ("model", "options", "estimated, MB", "measured, MB", "error")
            rows = [
                (each.model, each.options, _number(each.estimated), _number(each.measured), f"{each.error:+.1%}")
                for each in self.memory_estimates
            ]
            yield _table(head, rows)


_COLUMNS = (
    "first token p50/p99 ms",
    "inter-token p50/p99 ms",
    "pieces/token",
    "tokens/s",
    "small/s",
    "small p50/p99 ms",
)


_CACHE_COLUMNS = (
    "model",
    "kept",
    "first turn ms",
    "swap ms",
    "second turn ms",
    "read (cached)",
    "MB",
    "save",
    "restore",
)


def machine() -> str:
    """Name the machine that it was measured on."""
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
            slots = "used before" if comparison.used else "not used before"
            yield slots, comparison.clients, name, first, _number(side.chat_per_s), _number(side.embeddings_per_s)
        ratios = _range(comparison.chats, ".2f"), _range(comparison.embeddings, ".2f")
        yield "", "", "**to direct**", _range(comparison.first, "+.2f", " ms"), *ratios


def _embedding_rows(comparisons: list[EmbeddingComparison]) -> Rows:
    for each in comparisons:
        rates = _number(each.direct_per_s), _number(each.lemonbus_per_s)
        yield each.clients, *rates, _range(each.ratio, ".2f"), _number(each.ours_us), _number(each.engine_us)


def _dialect_rows(comparisons: list[DialectComparison]) -> Rows:
    for each in comparisons:
        gateway = f"{_number(each.gateway_us.median)} ({_number(each.reference_us)})"
        first = _range(each.first, "+.2f", " ms")
        yield each.dialect, each.clients, first, _range(each.tokens, ".2f"), _number(each.tokens_per_s), gateway


def _range(spread: Spread, form: str, unit: str = "") -> str:
    return f"{spread.median:{form}}{unit} ({spread.least:{form}} to {spread.most:{form}})"


def _processor_rows(figures: list[ProcessorTime]) -> Rows:
    for each in figures:
        parts = each.gateway, each.supervisor, each.worker, each.ours, each.engine, each.requests_per_s
        yield each.request, each.clients, each.caller, *(f"{part:.0f}" for part in parts)


def _latency_rows(latencies: Latencies) -> Rows:
    yield "swap: POST to first byte", _number(latencies.swap)
    yield "the engine's own start", _number(latencies.engine_start)
    yield "health during swaps, p99 / worst", f"{_number(latencies.health_p99)} / {_number(latencies.health_worst)}"
    yield "crash to noticed", _number(latencies.crash_noticed)
    yield "crash to told", _number(latencies.crash_reported)
    yield "crash to ready again", _number(latencies.crash_ready)
    yield "hang-up to idle, decoding", _number(latencies.hang_up_decoding)
    yield "hang-up to idle, prefill of 3,000 tokens", _number(latencies.hang_up_prefill)


def _prompt_cache_rows(results: list[PromptCacheResult]) -> Rows:
    for each in results:
        rates = [
            f"{_number(taken)} ms, {_number(rate)} MB/s" if taken else ""
            for taken, rate in ((each.save, each.save_rate), (each.restore, each.restore_rate))
        ]
        tokens = f"{each.read:.0f} ({each.cached:.0f})"
        times = (_number(time) for time in (each.first_turn, each.swap, each.second_turn))
        yield each.model, "yes" if each.kept else "no", *times, tokens, _number(each.size) if each.size else "", *rates


def _mixed_section(comparisons: list[MixedComparison]) -> list[str]:
    if not comparisons:
        return []
    what = f"{RATE:g} requests/s of {TOKENS} tokens for one of {MODELS} models; seconds from the arrival"
    columns = ("places", "", "first token p50", "p95", "worst", "end p50", "p95", "worst", "loads/request")
    return [f"{what}, medians and ranges of the rounds.", _table(columns, _mixed_rows(comparisons))]


def _mixed_rows(comparisons: list[MixedComparison]) -> Rows:
    for each in comparisons:
        for name, results in (("first come, first served", each.in_order), ("lemonbus", each.lemonbus)):
            times = [
                _range(spread([getattr(result, what)[index] for result in results]), ".2f")
                for what in ("first", "end")
                for index in range(3)
            ]
            yield each.places, name, *times, _range(spread([result.loads for result in results]), ".2f")
        ratios = [_range(each.ratio(what, index), ".2f") for what in ("first", "end") for index in range(3)]
        yield "", "**to first come, first served**", *ratios, ""


def _recovery_rows(recovery: RecoveryTimes) -> Rows:
    grants = f"{_number(recovery.grant)} / {_number(recovery.grant_p99)} ms"
    yield f"to the next answer, median / p99 of {recovery.kills}", grants
    yield "the same answer without a kill", f"{_number(recovery.answer)} ms"
    yield f"the first with {recovery.models} models loaded, median", f"{_number(recovery.many_grant)} ms"
    yield "PSS of the keeper", f"{_number(recovery.keeper)} MB"
    yield "PSS of the fork server", f"{_number(recovery.fork_server)} MB"


def _table(head: Iterable[str], rows: Rows) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
