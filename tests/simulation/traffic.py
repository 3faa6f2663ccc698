"""The requests of a day: models by Zipf's law, a curve with a peak, bursts of single keys, clients that hang up."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.simulation.engines import PROMPT_SPEED, TOKEN_SPEED, VirtualModel

STEADY_KEYS: Final = tuple(f"steady{number}" for number in range(12))
BURST_KEY: Final = "bursts"
"""The key that sends a tenth of all requests, in bursts for a few models."""
BURST_SHARE: Final = 0.1
BURST_EVERY_S: Final = 40.0
BURST_S: Final = 8.0
NIGHT: Final = 0.25
"""The rate at night, as a part of that at the peak."""
CANCELLED: Final = 0.04
PROMPT_TOKENS: Final = 900
OUTPUT_TOKENS: Final = 700
STREAM_S: Final = PROMPT_TOKENS / PROMPT_SPEED + OUTPUT_TOKENS / (TOKEN_SPEED * 0.65)
"""A mean stream of a busy engine."""


class VirtualRequest(NamedTuple):
    """A request: when it comes, for what, and how long its client waits after that."""

    number: int
    at: float
    model: str
    key: str
    prompt: int
    tokens: int
    patience: float


class Traffic(NamedTuple):
    """What comes in a day of ``day`` seconds, in which the cluster has as many ``streams`` at the peak."""

    models: Sequence[VirtualModel]
    streams: int
    day: float
    seed: int

    @property
    def peak(self) -> float:
        """Requests a second."""
        return self.streams / STREAM_S

    def rate(self, at: float) -> float:
        """Return the requests a second at a time of the day, without bursts."""
        return self.peak * (1 - BURST_SHARE) * (NIGHT + (1 - NIGHT) * math.sin(math.pi * at / self.day) ** 2)

    def arrivals(self) -> Iterator[VirtualRequest]:
        """Yield the requests in the order of their arrival."""
        draw = random.Random(self.seed)
        cumulated = list(itertools.accumulate(model.share for model in self.models))
        numbers, at = itertools.count(1), 0.0
        burst_models: list[VirtualModel] = list(self.models[:1])
        burst_end, next_burst = 0.0, BURST_EVERY_S / 2
        while True:
            steady = self.rate(at)
            burst = steady * BURST_SHARE * BURST_EVERY_S / BURST_S if at < burst_end else 0.0
            at += draw.expovariate(steady + burst)
            if at >= self.day:
                return
            if at >= next_burst:
                burst_end, next_burst = next_burst + BURST_S, next_burst + BURST_EVERY_S
                burst_models = draw.choices(self.models, cum_weights=cumulated, k=max(1, len(self.models) // 5))
            of_burst = draw.random() * (steady + burst) < burst
            pool, weights = (burst_models, None) if of_burst else (self.models, cumulated)
            yield VirtualRequest(
                next(numbers),
                at,
                draw.choices(pool, cum_weights=weights)[0].name,
                BURST_KEY if of_burst else draw.choice(STEADY_KEYS),
                int(draw.lognormvariate(math.log(PROMPT_TOKENS) - 0.32, 0.8)) + 1,
                int(draw.lognormvariate(math.log(OUTPUT_TOKENS) - 0.32, 0.8)) + 1,
                draw.expovariate(1 / STREAM_S) if draw.random() < CANCELLED else math.inf,
            )
