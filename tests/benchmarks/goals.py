"""The goals on two cores, and the further goals."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.benchmarks.dialects import DialectComparison
from tests.benchmarks.embeddings import EmbeddingComparison
from tests.benchmarks.footprint import Footprint
from tests.benchmarks.latencies import Latencies
from tests.benchmarks.memory_estimates import MemoryComparison
from tests.benchmarks.mixed import MixedComparison
from tests.benchmarks.node_loss import NodeLossTimes
from tests.benchmarks.one_token import OneTokenComparison
from tests.benchmarks.open_page import OpenPageCost
from tests.benchmarks.processor_time import ProcessorTime
from tests.benchmarks.prompt_cache import PromptCacheResult
from tests.benchmarks.recovery import RecoveryTimes
from tests.benchmarks.throughput import Comparison


class Goal(NamedTuple):
    """One figure: ``now`` must be reached, and ``next`` is the further goal. ``more``: whether a larger figure is better."""

    what: str
    value: float
    now: float
    next: float
    unit: str = "ms"
    more: bool = False

    def reached(self, goal: float) -> bool:
        return self.value >= goal if self.more else self.value <= goal

    @property
    def mark(self) -> str:
        return "✓✓" if self.reached(self.next) else "✓" if self.reached(self.now) else "✗"


def throughput_goals(comparisons: list[Comparison]) -> list[Goal]:
    """Return the goals for streams and small requests; none if they were not measured."""
    if not comparisons:
        return []
    by_clients = {comparison.clients: comparison.ratio for comparison in comparisons}
    return [
        Goal("first token over the engine, p50, 1 client", by_clients[1].first, 1.5, 0.8),
        Goal("tokens/s, 8 clients", by_clients[8].tokens, 0.80, 0.90, "of the engine's", more=True),
        Goal("tokens/s, 32 clients", by_clients[32].tokens, 0.90, 0.95, "of the engine's", more=True),
        Goal("small requests/s, 8 clients", by_clients[8].small, 0.75, 0.90, "of the engine's", more=True),
        Goal("small requests/s, 32 clients", by_clients[32].small, 0.85, 0.98, "of the engine's", more=True),
    ]


_ONE_TOKEN_RATES: Final = {1: (0.62, 0.80), 8: (0.75, 0.90), 32: (0.85, 0.98)}
"""Clients → the goal and the further goal."""


def one_token_goals(comparisons: list[OneTokenComparison]) -> list[Goal]:
    """Return the goals for answers of one token; none if they were not measured."""
    if not comparisons:
        return []
    goals = []
    for each in comparisons:
        engine = "slots used before" if each.used else "cold engine"
        if each.clients == 1:
            goals.append(Goal(f"first token of one, {engine}, 1 client", each.first.median, 1.3, 0.8))
        least, further = _ONE_TOKEN_RATES[each.clients]
        what = f"one-token chats/s, {engine}, {each.clients} client{'s' * (each.clients > 1)}"
        goals.append(Goal(what, each.chats.median, least, further, "of the engine's", more=True))
    return goals


_EMBEDDING_RATES: Final = {1: (0.85, 0.95), 8: (0.95, 1.0), 32: (0.95, 1.0)}
"""Clients → the goal and the further goal."""


def embedding_goals(comparisons: list[EmbeddingComparison]) -> list[Goal]:
    """Return the goals for embeddings of a larger model; none if they were not measured."""
    return [
        Goal(
            f"embeddings/s, {each.clients} client{'s' * (each.clients > 1)}",
            each.ratio.median,
            *_EMBEDDING_RATES[each.clients],
            "of the engine's",
            more=True,
        )
        for each in comparisons
    ]


def dialect_goals(comparisons: list[DialectComparison]) -> list[Goal]:
    """Return the goals for each dialect, compared with chat completions."""
    goals = []
    for each in comparisons:
        if each.clients == 1:
            what = f"{each.dialect}: first token over chat/completions, 1 client"
            goals.append(Goal(what, each.first.median, 0.3, 0.1))
        else:
            what = f"{each.dialect}: tokens/s, {each.clients} clients"
            goals.append(Goal(what, each.tokens.median, 0.95, 1.0, "of chat/completions'", more=True))
    return goals


def key_goals(figures: list[ProcessorTime]) -> list[Goal]:
    """Return the goals for what keys add to a request's processor time, including the engine's: it limits the rate."""
    without = {(each.request, each.clients): each.total for each in figures if each.caller == "no keys"}
    return [
        Goal(
            f"{each.caller}: {each.request}, {each.clients} client{'s' * (each.clients > 1)}",
            100 * (each.total / without[each.request, each.clients] - 1),
            2.0,
            1.0,
            "% more processor time",
        )
        for each in figures
        if each.caller != "no keys"
    ]


def latency_goals(latencies: Latencies) -> list[Goal]:
    """Return the goals for single events: swaps, crashes, hang-ups."""
    return [
        Goal("swap over the engine's start", latencies.swap_over, 50, 30),
        Goal("health during swaps, worst", latencies.health_worst, 50, 50),
        Goal("crash noticed", latencies.crash_noticed, 100, 100),
        Goal("crash told to the client", latencies.crash_reported, 250, 100),
        Goal("hang-up to idle slot, decoding", latencies.hang_up_decoding, 250, 250),
        Goal("hang-up to idle slot, prefill", latencies.hang_up_prefill, 1000, 1000),
    ]


def prompt_cache_goals(results: list[PromptCacheResult]) -> list[Goal]:
    """Return the goals for a conversation that continues after a swap; none if that was not measured."""
    kept = next((each for each in results if each.kept), None)
    if kept is None:
        return []
    without = next(each for each in results if not each.kept)
    return [
        Goal("second turn after a swap: tokens that are read", kept.read, 100, 50, "tokens"),
        Goal(
            "its first token, as a part of one without prompt cache",
            kept.second_turn / without.second_turn,
            0.5,
            0.25,
            "",
        ),
        Goal("what saving adds to a swap", kept.save, 500, 100),
    ]


def mixed_goals(comparisons: list[MixedComparison]) -> list[Goal]:
    """Return the goals for more models than fit; none if that was not measured."""
    goals = []
    for each in comparisons:
        places = f"{each.places} place{'s' * (each.places > 1)}"
        for what, name in (("first", "first token"), ("end", "end")):
            ratio = each.ratio(what, 1).median
            goals.append(Goal(f"mixed trace, {places}: {name}, p95", ratio, 1.0, 0.8, "of first come, first served"))
        broken = sum(result.broken for result in (*each.lemonbus, *each.in_order))
        goals.append(Goal(f"mixed trace, {places}: broken answers", broken, 0, 0, ""))
    return goals


def recovery_goals(recovery: RecoveryTimes) -> list[Goal]:
    """Return the goals for a killed supervisor."""
    return [
        Goal("supervisor killed to next answer, median", recovery.grant, 300, 150),
        Goal("supervisor killed to next answer, p99", recovery.grant_p99, 1000, 500),
        Goal(f"the same with {recovery.models} models loaded, median", recovery.many_grant, 1000, 500),
        Goal("requests that such a kill broke", recovery.broken, 0, 0, ""),
        Goal("memory of the keeper", recovery.keeper, 8, 6, "MB"),
    ]


def open_page_goals(costs: list[OpenPageCost]) -> list[Goal]:
    """Return the goals for an open page."""
    return [Goal(f"an open page, {each.case}", each.one, 1.0, 0.5, "% of a processor") for each in costs]


def node_loss_goals(losses: list[NodeLossTimes]) -> list[Goal]:
    """Return the goals for a lost node: the slowest round counts."""
    return [Goal(f"{each.end}: until its stream ends", each.seconds.most, 5.0, 3.5, "s") for each in losses]


def footprint_goals(footprint: Footprint) -> list[Goal]:
    """Return the goals for memory."""
    return [
        Goal("memory of a worker", footprint.worker, 25, 20, "MB"),
        Goal("memory of gateway and supervisor", footprint.gateway + footprint.supervisor, 100, 100, "MB"),
    ]


def memory_goals(found: list[MemoryComparison]) -> list[Goal]:
    """Return the goal for estimates of llama.cpp's memory."""
    errors = [abs(each.error) * 100 for each in found if each.recipe == "llamacpp"]
    return [Goal("worst error of an estimate of memory", max(errors), 15, 10, "%")] if errors else []


def broken_answers(
    comparisons: list[Comparison],
    one_token: list[OneTokenComparison],
    embeddings: list[EmbeddingComparison],
    dialects: list[DialectComparison],
) -> Goal:
    """Return the goal that no answer was broken."""
    broken = sum(each.lemonbus.broken for each in (*comparisons, *one_token))
    broken += sum(each.broken for each in (*embeddings, *dialects))
    return Goal("broken answers", broken, 0, 0, "")
