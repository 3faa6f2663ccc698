"""Streams and small requests, directly and through lemonbus, alternating in one run.

There are two direct ways: the engine as a user starts it, and with the scheduling policy that a worker gives its own.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tests.benchmarks.engine_alone import engine_alone
from tests.benchmarks.load_generator import LoadJob, LoadResult, run_in_process
from tests.benchmarks.measuring import median, ms, percentile
from tests.support.server import LemonbusServer

MODEL = "extra.tiny-loop"
CLIENTS = (1, 8, 32)
TOKENS, FEW = 256, 8
STREAMS = {1: 12, 8: 3, 32: 1}
SMALL = {1: 120, 8: 40, 32: 24}
"""Streams of a client in a round, and small requests: enough to make their beginning and end unimportant."""


class ThroughputResult(msgspec.Struct):
    """One way to the engine, over all rounds. Milliseconds, and per second."""

    first_p50: float = 0.0
    first_p99: float = 0.0
    gap_p50: float = 0.0
    gap_p99: float = 0.0
    pieces_per_token: float = 0.0
    tokens_per_s: float = 0.0
    small_per_s: float = 0.0
    small_p50: float = 0.0
    small_p99: float = 0.0
    broken: int = 0


class Ratio(NamedTuple):
    """One side compared with another: milliseconds more, and parts of its rates."""

    first: float
    tokens: float
    small: float


class Comparison(msgspec.Struct):
    """Results for one number of clients."""

    clients: int
    direct: ThroughputResult
    direct_with_policy: ThroughputResult
    """Directly, with the policy of a worker's engine."""
    lemonbus: ThroughputResult

    @property
    def ratio(self) -> Ratio:
        """What users gain and lose by lemonbus."""
        return self._to(self.direct)

    @property
    def overhead(self) -> Ratio:
        """What the way through lemonbus costs by itself."""
        return self._to(self.direct_with_policy)

    def _to(self, other: ThroughputResult) -> Ratio:
        ours = self.lemonbus
        return Ratio(
            ours.first_p50 - other.first_p50,
            ours.tokens_per_s / other.tokens_per_s,
            ours.small_per_s / other.small_per_s,
        )


def summarize(streams: list[LoadResult], small: list[LoadResult]) -> ThroughputResult:
    """Summarize: percentiles over all rounds, rates as the median of the rounds."""
    first = [value for result in streams for value in result.first]
    gaps = [value for result in streams for value in result.gaps]
    whole = [value for result in small for value in result.whole]
    return ThroughputResult(
        first_p50=ms(percentile(first, 0.5)),
        first_p99=ms(percentile(first, 0.99)),
        gap_p50=ms(percentile(gaps, 0.5)),
        gap_p99=ms(percentile(gaps, 0.99)),
        pieces_per_token=sum(result.pieces for result in streams) / max(1, sum(result.tokens for result in streams)),
        tokens_per_s=median([result.tokens / result.seconds for result in streams]),
        small_per_s=median([result.requests / result.seconds for result in small]),
        small_p50=ms(percentile(whole, 0.5)),
        small_p99=ms(percentile(whole, 0.99)),
        broken=sum(result.broken for result in (*streams, *small)),
    )


def measure(rounds: int) -> list[Comparison]:
    """Measure with every number of clients."""
    with LemonbusServer(
        "tiny-loop", slots=32, ctx_size=1024, log_level="info", gateway_workers=0, load=[MODEL]
    ) as server:
        server.wait_loaded(MODEL)
        engine = server.engine(MODEL)
        with engine_alone(engine) as (direct, _), engine_alone(engine, policy=True) as (direct_with_policy, _):
            ports = direct, direct_with_policy, server.port
            # An engine's time for a request depends on how many of its slots were ever used; after a while, all were.
            for warm in ports:
                run_in_process(LoadJob(warm, MODEL, max(CLIENTS), 1, TOKENS, stream=True))
            return [_compare(clients, rounds, ports) for clients in CLIENTS]


def _compare(clients: int, rounds: int, ports: tuple[int, int, int]) -> Comparison:
    results: dict[tuple[int, bool], list[LoadResult]] = {}
    for turn in range(rounds):
        # The order changes from round to round, so that warming up or slowing down within a round affects all alike.
        first = turn % len(ports)
        for stream in (True, False):
            for port in ports[first:] + ports[:first]:
                repeat = (STREAMS if stream else SMALL)[clients]
                job = LoadJob(port, MODEL, clients, repeat, TOKENS if stream else FEW, stream)
                results.setdefault((port, stream), []).append(run_in_process(job))
    sides = [summarize(results[port, True], results[port, False]) for port in ports]
    return Comparison(clients, *sides)
