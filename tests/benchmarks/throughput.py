"""Streams and small requests, directly and through lemonbus, alternating in one run.

Directly in two ways: the engine as anybody starts it, and with the scheduling policy that a worker gives its own.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tests.benchmarks.direct import alone
from tests.benchmarks.figures import middle, ms, share
from tests.benchmarks.load import Job, Result, in_its_process
from tests.house.server import Server

MODEL = "extra.tiny-loop"
CLIENTS = (1, 8, 32)
TOKENS, FEW = 256, 8
STREAMS = {1: 12, 8: 3, 32: 1}
SMALL = {1: 120, 8: 40, 32: 24}
"""Streams of a client in a round, and small requests: so many that their beginning and end do not count for much."""


class Side(msgspec.Struct):
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
    """One side in terms of another. Milliseconds more, and parts of its rates."""

    first: float
    tokens: float
    small: float


class Trio(msgspec.Struct):
    """What one number of clients saw."""

    clients: int
    direct: Side
    alike: Side
    """Directly, with the policy of a worker's engine."""
    lemonbus: Side

    @property
    def ratio(self) -> Ratio:
        """What users gain and lose by lemonbus."""
        return self._to(self.direct)

    @property
    def way(self) -> Ratio:
        """What the way through lemonbus costs by itself."""
        return self._to(self.alike)

    def _to(self, other: Side) -> Ratio:
        ours = self.lemonbus
        return Ratio(
            ours.first_p50 - other.first_p50,
            ours.tokens_per_s / other.tokens_per_s,
            ours.small_per_s / other.small_per_s,
        )


def side(streams: list[Result], small: list[Result]) -> Side:
    """Sum up: percentiles over everything, rates as the median of the rounds."""
    first = [value for result in streams for value in result.first]
    gaps = [value for result in streams for value in result.gaps]
    whole = [value for result in small for value in result.whole]
    return Side(
        first_p50=ms(share(first, 0.5)),
        first_p99=ms(share(first, 0.99)),
        gap_p50=ms(share(gaps, 0.5)),
        gap_p99=ms(share(gaps, 0.99)),
        pieces_per_token=sum(result.pieces for result in streams) / max(1, sum(result.tokens for result in streams)),
        tokens_per_s=middle([result.tokens / result.seconds for result in streams]),
        small_per_s=middle([result.requests / result.seconds for result in small]),
        small_p50=ms(share(whole, 0.5)),
        small_p99=ms(share(whole, 0.99)),
        broken=sum(result.broken for result in (*streams, *small)),
    )


def measure(rounds: int) -> list[Trio]:
    """Measure with every number of clients."""
    with Server("tiny-loop", slots=32, ctx_size=1024, log_level="info", gateway_workers=0, load=[MODEL]) as server:
        server.wait_loaded(MODEL)
        engine = server.engine(MODEL)
        with alone(engine) as (direct, _), alone(engine, policy=True) as (alike, _):
            ports = direct, alike, server.port
            # An engine's time for a request depends on how many of its slots were ever used: all, after a while.
            for warm in ports:
                in_its_process(Job(warm, MODEL, max(CLIENTS), 1, TOKENS, stream=True))
            return [_trio(clients, rounds, ports) for clients in CLIENTS]


def _trio(clients: int, rounds: int, ports: tuple[int, int, int]) -> Trio:
    results: dict[tuple[int, bool], list[Result]] = {}
    for turn in range(rounds):
        # Who is first changes from round to round: what grows warm or slow in a round hits all alike.
        first = turn % len(ports)
        for stream in (True, False):
            for port in ports[first:] + ports[:first]:
                repeat = (STREAMS if stream else SMALL)[clients]
                job = Job(port, MODEL, clients, repeat, TOKENS if stream else FEW, stream)
                results.setdefault((port, stream), []).append(in_its_process(job))
    sides = [side(results[port, True], results[port, False]) for port in ports]
    return Trio(clients, *sides)
