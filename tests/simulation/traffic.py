"""The requests of a day: models by Zipf's law, a curve with a peak, short and long answers, bursts of one key, clients that hang up."""

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
CHAT_TOKENS: Final = 500
LONG_TOKENS: Final = 8000
"""Tokens of an answer of a model that thinks first, or writes a program; the mean, as in chats."""
LONG_SHARE: Final = 0.2
STREAM_S: Final = PROMPT_TOKENS / PROMPT_SPEED + (CHAT_TOKENS + LONG_SHARE * (LONG_TOKENS - CHAT_TOKENS)) / (
    TOKEN_SPEED * 0.65
)
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
    begin: float = 0.0
    """Only what comes after this part of the day, and before ``end``."""
    end: float = 1.0

    @property
    def seconds(self) -> float:
        """How long requests come."""
        return (self.end - self.begin) * self.day

    @property
    def peak(self) -> float:
        """Requests a second."""
        return self.streams / STREAM_S

    def rate(self, at: float) -> float:
        """Return the requests a second ``at`` seconds after the beginning, without bursts."""
        part = self.begin + at / self.day
        return self.peak * (1 - BURST_SHARE) * (NIGHT + (1 - NIGHT) * math.sin(math.pi * part) ** 2)

    def arrivals(self, start: float) -> Iterator[VirtualRequest]:
        """Yield the requests in the order of their arrival. ``start``: the time of the clock when they begin to come."""
        draw = random.Random(self.seed)
        cumulated = list(itertools.accumulate(model.share for model in self.models))
        numbers, at = itertools.count(1), 0.0
        burst_models: list[VirtualModel] = list(self.models[:1])
        burst_end, next_burst = 0.0, BURST_EVERY_S / 2
        while True:
            steady = self.rate(at)
            burst = steady * BURST_SHARE * BURST_EVERY_S / BURST_S if at < burst_end else 0.0
            at += draw.expovariate(steady + burst)
            if at >= self.seconds:
                return
            if at >= next_burst:
                burst_end, next_burst = next_burst + BURST_S, next_burst + BURST_EVERY_S
                burst_models = draw.choices(self.models, cum_weights=cumulated, k=max(1, len(self.models) // 5))
            of_burst = draw.random() * (steady + burst) < burst
            pool, weights = (burst_models, None) if of_burst else (self.models, cumulated)
            tokens = LONG_TOKENS if draw.random() < LONG_SHARE else CHAT_TOKENS
            yield VirtualRequest(
                next(numbers),
                start + at,
                draw.choices(pool, cum_weights=weights)[0].name,
                BURST_KEY if of_burst else draw.choice(STEADY_KEYS),
                int(draw.lognormvariate(math.log(PROMPT_TOKENS) - 0.32, 0.8)) + 1,
                int(draw.lognormvariate(math.log(tokens) - 0.32, 0.8)) + 1,
                draw.expovariate(1 / STREAM_S) if draw.random() < CANCELLED else math.inf,
            )
