"""What is to be reached on two cores, and what is hoped for beyond that."""

from __future__ import annotations

from typing import NamedTuple

from tests.benchmarks.footprint import Footprint
from tests.benchmarks.latencies import Latencies
from tests.benchmarks.one_token import OneTokenComparison
from tests.benchmarks.throughput import Comparison


class Goal(NamedTuple):
    """One figure: ``now`` must be reached, ``next`` is the further goal. ``more`` is better, or less is."""

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


def evaluate_goals(
    comparisons: list[Comparison], one_token: list[OneTokenComparison], latencies: Latencies, footprint: Footprint
) -> list[Goal]:
    """Every goal with its figure."""
    by_clients = {comparison.clients: comparison.ratio for comparison in comparisons}
    harsh = {comparison.clients: comparison for comparison in one_token}
    return [
        Goal("first token over the engine, p50, 1 client", by_clients[1].first, 1.5, 0.8),
        Goal("tokens/s, 8 clients", by_clients[8].tokens, 0.80, 0.90, "of the engine's", more=True),
        Goal("tokens/s, 32 clients", by_clients[32].tokens, 0.90, 0.95, "of the engine's", more=True),
        Goal("small requests/s, 8 clients", by_clients[8].small, 0.75, 0.90, "of the engine's", more=True),
        Goal("small requests/s, 32 clients", by_clients[32].small, 0.85, 0.98, "of the engine's", more=True),
        Goal("first token of one, cold engine, 1 client", harsh[1].first, 1.3, 0.8),
        *(
            Goal(
                f"one-token chats/s, {clients} client{'s' * (clients > 1)}",
                harsh[clients].chat,
                least,
                further,
                "of the engine's",
                more=True,
            )
            for clients, least, further in ((1, 0.62, 0.80), (8, 0.75, 0.90), (32, 0.85, 0.98))
        ),
        Goal("swap over the engine's start", latencies.swap_over, 50, 30),
        Goal("health during swaps, worst", latencies.health_worst, 50, 50),
        Goal("crash noticed", latencies.crash_noticed, 100, 100),
        Goal("crash told to the client", latencies.crash_reported, 250, 100),
        Goal("hang-up to idle slot, decoding", latencies.hang_up_decoding, 250, 250),
        Goal("hang-up to idle slot, prefill", latencies.hang_up_prefill, 1000, 1000),
        Goal("memory of a worker", footprint.worker, 25, 20, "MB"),
        Goal("memory of gateway and supervisor", footprint.gateway + footprint.supervisor, 100, 100, "MB"),
        Goal("broken answers", sum(comparison.lemonbus.broken for comparison in (*comparisons, *one_token)), 0, 0, ""),
    ]
