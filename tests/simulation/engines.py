"""How fast a virtual engine is, and what a virtual model needs."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from protocol.models.recipes import ModelSpec

GB: Final = 1_000_000_000
SLOTS: Final = 48
"""Streams that an engine decodes at once."""
PROMPT_SPEED: Final = 4000.0
"""Tokens a second."""
TOKEN_SPEED: Final = 60.0
"""Tokens a second of the only stream of an engine."""
CROWDING: Final = 0.5
"""The part of its speed that a stream loses if all slots are in use."""
DISK_SPEED: Final = 2.0 * GB
"""Bytes a second."""
ENGINE_START_S: Final = 1.0
SPAWN_S: Final = 0.4
CHECK_S: Final = 0.02
LEAVE_S: Final = 0.2
RARE_SHARE: Final = 0.001
"""Of the requests, all that are for rare models: a day's models are never all in use at once."""
CANCEL_S: Final = 0.02
"""From a cancel to the end of the attempt."""


class VirtualModel(NamedTuple):
    """A model: its name, its files' size in bytes, and its share of the requests."""

    name: str
    size: int
    share: float

    @property
    def load_s(self) -> float:
        """Seconds from the start of its engine until it answers."""
        return ENGINE_START_S + self.size / DISK_SPEED

    @property
    def need(self) -> int:
        """Bytes of memory that its engine takes: its files, and an eighth more for the context."""
        return self.size + self.size // 8

    @property
    def spec(self) -> ModelSpec:
        """The model as the scheduler gets it."""
        return ModelSpec(
            self.name, f"virtual/{self.name}", "llamacpp", "cpu", "llm", f"/models/{self.name}.gguf", size=self.size
        )


class StreamTimes(NamedTuple):
    """Seconds from the grant of a stream to its first token and to its end."""

    first: float
    end: float


def stream_times(prompt: int, tokens: int, running: int) -> StreamTimes:
    """Return the times of a stream that begins beside others; ``running`` counts it."""
    first = prompt / PROMPT_SPEED + 1.0 / TOKEN_SPEED
    speed = TOKEN_SPEED * (1.0 - CROWDING * min(1.0, running / SLOTS))
    return StreamTimes(first, first + tokens / speed)


def virtual_models(number: int, exponent: float, most: float, seed: int, rare: int = 0) -> list[VirtualModel]:
    """Return models of all usual sizes, with shares by Zipf's law, and then ``rare`` ones that share very few requests.

    ``most``: a share that no model exceeds, because one engine cannot serve more.
    """
    sizes = random.Random(seed)
    weights = [1.0 / rank**exponent for rank in range(1, number + 1)]
    bounded = most * sum(weights)
    for _ in range(50):  # what is taken from the first ones raises the shares of the others
        weights = [min(weight, bounded) for weight in weights]
        bounded = most * sum(weights)
    total = sum(weights) / (1.0 - RARE_SHARE if rare else 1.0)
    weights += [total * RARE_SHARE / rare] * rare if rare else []
    return [
        VirtualModel(f"model{rank:04}", int(sizes.choice((1, 2, 2, 4, 4, 8, 8, 16, 40)) * GB), weight / total)
        for rank, weight in enumerate(weights)
    ]
