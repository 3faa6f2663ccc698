"""The tables of the benchmark's report, as markdown."""

from __future__ import annotations

from collections.abc import Iterable

from tests.benchmarks.dialects import DialectComparison
from tests.benchmarks.embeddings import EmbeddingComparison
from tests.benchmarks.latencies import Latencies
from tests.benchmarks.measuring import Spread, spread
from tests.benchmarks.mixed import MODELS, RATE, TOKENS, MixedComparison
from tests.benchmarks.one_token import OneTokenComparison
from tests.benchmarks.processor_time import ProcessorTime
from tests.benchmarks.prompt_cache import PromptCacheResult
from tests.benchmarks.recovery import RecoveryTimes
from tests.benchmarks.throughput import Comparison, Ratio

Rows = Iterable[Iterable[object]]


COLUMNS = (
    "first token p50/p99 ms",
    "inter-token p50/p99 ms",
    "pieces/token",
    "tokens/s",
    "small/s",
    "small p50/p99 ms",
)


CACHE_COLUMNS = (
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


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def throughput_table(comparisons: list[Comparison]) -> Rows:
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
                f"{number(side.first_p50)} / {number(side.first_p99)}",
                f"{number(side.gap_p50)} / {number(side.gap_p99)}",
                number(side.pieces_per_token),
                number(side.tokens_per_s),
                number(side.small_per_s),
                f"{number(side.small_p50)} / {number(side.small_p99)}",
            )
        yield ratio("**to direct**", comparison.ratio)
        yield ratio("to the same policy", comparison.overhead)


def ratio(name: str, ratio: Ratio) -> Iterable[object]:
    return "", name, f"{ratio.first:+.2f} ms", "", "", number(ratio.tokens), number(ratio.small), ""


def one_token_rows(comparisons: list[OneTokenComparison]) -> Rows:
    for comparison in comparisons:
        for name, side in (("direct", comparison.direct), ("lemonbus", comparison.lemonbus)):
            first = f"{number(side.first_p50)} / {number(side.first_p99)}"
            slots = "used before" if comparison.used else "not used before"
            yield slots, comparison.clients, name, first, number(side.chat_per_s), number(side.embeddings_per_s)
        ratios = range_of(comparison.chats, ".2f"), range_of(comparison.embeddings, ".2f")
        yield "", "", "**to direct**", range_of(comparison.first, "+.2f", " ms"), *ratios


def embedding_rows(comparisons: list[EmbeddingComparison]) -> Rows:
    for each in comparisons:
        rates = number(each.direct_per_s), number(each.lemonbus_per_s)
        yield each.clients, *rates, range_of(each.ratio, ".2f"), number(each.ours_us), number(each.engine_us)


def dialect_rows(comparisons: list[DialectComparison]) -> Rows:
    for each in comparisons:
        gateway = f"{number(each.gateway_us.median)} ({number(each.reference_us)})"
        first = range_of(each.first, "+.2f", " ms")
        yield each.dialect, each.clients, first, range_of(each.tokens, ".2f"), number(each.tokens_per_s), gateway


def range_of(spread: Spread, form: str, unit: str = "") -> str:
    return f"{spread.median:{form}}{unit} ({spread.least:{form}} to {spread.most:{form}})"


def processor_rows(figures: list[ProcessorTime]) -> Rows:
    for each in figures:
        parts = each.gateway, each.supervisor, each.worker, each.ours, each.engine, each.requests_per_s
        yield each.request, each.clients, each.caller, *(f"{part:.0f}" for part in parts)


def latency_rows(latencies: Latencies) -> Rows:
    yield "swap: POST to first byte", number(latencies.swap)
    yield "the engine's own start", number(latencies.engine_start)
    yield "health during swaps, p99 / worst", f"{number(latencies.health_p99)} / {number(latencies.health_worst)}"
    yield "crash to noticed", number(latencies.crash_noticed)
    yield "crash to told", number(latencies.crash_reported)
    yield "crash to ready again", number(latencies.crash_ready)
    yield "hang-up to idle, decoding", number(latencies.hang_up_decoding)
    yield "hang-up to idle, prefill of 3,000 tokens", number(latencies.hang_up_prefill)


def prompt_cache_rows(results: list[PromptCacheResult]) -> Rows:
    for each in results:
        rates = [
            f"{number(taken)} ms, {number(rate)} MB/s" if taken else ""
            for taken, rate in ((each.save, each.save_rate), (each.restore, each.restore_rate))
        ]
        tokens = f"{each.read:.0f} ({each.cached:.0f})"
        times = (number(time) for time in (each.first_turn, each.swap, each.second_turn))
        yield each.model, "yes" if each.kept else "no", *times, tokens, number(each.size) if each.size else "", *rates


def mixed_section(comparisons: list[MixedComparison]) -> list[str]:
    if not comparisons:
        return []
    what = f"{RATE:g} requests/s of {TOKENS} tokens for one of {MODELS} models; seconds from the arrival"
    columns = ("places", "", "first token p50", "p95", "worst", "end p50", "p95", "worst", "loads/request")
    return [f"{what}, medians and ranges of the rounds.", table(columns, mixed_rows(comparisons))]


def mixed_rows(comparisons: list[MixedComparison]) -> Rows:
    for each in comparisons:
        for name, results in (("first come, first served", each.in_order), ("lemonbus", each.lemonbus)):
            times = [
                range_of(spread([getattr(result, what)[index] for result in results]), ".2f")
                for what in ("first", "end")
                for index in range(3)
            ]
            yield each.places, name, *times, range_of(spread([result.loads for result in results]), ".2f")
        ratios = [range_of(each.ratio(what, index), ".2f") for what in ("first", "end") for index in range(3)]
        yield "", "**to first come, first served**", *ratios, ""


def recovery_rows(recovery: RecoveryTimes) -> Rows:
    grants = f"{number(recovery.grant)} / {number(recovery.grant_p99)} ms"
    yield f"to the next answer, median / p99 of {recovery.kills}", grants
    yield "the same answer without a kill", f"{number(recovery.answer)} ms"
    yield f"the first with {recovery.models} models loaded, median", f"{number(recovery.many_grant)} ms"
    yield "PSS of the keeper", f"{number(recovery.keeper)} MB"
    yield "PSS of the fork server", f"{number(recovery.fork_server)} MB"


def table(head: Iterable[str], rows: Rows) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
