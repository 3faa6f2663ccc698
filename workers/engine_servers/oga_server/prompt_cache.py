"""The library's generator of the last answer, kept so that a conversation's next prompt is not computed again.

A generator holds the key-value cache of its sequence. When a new prompt begins with the same tokens, the generator is
rewound to the end of the common part, and only the rest is appended. The library reads most sampling options when the
generator is made, so a generator is only used again for the same options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

MIN_CAPACITY_TOKENS: Final = 4096
"""Least capacity of a kept generator, if the model's context allows it."""


class CachedGenerator(NamedTuple):
    """A generator with its parameters."""

    generator: Any
    parameters: Any
    sampling: tuple[Any, ...]
    """The options that cannot be changed any more."""
    capacity: int
    """Most tokens of prompt and answer together."""


class PromptCache:
    """Keeps one generator. It is used by one request at a time."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: CachedGenerator | None = None

    def take(self, sampling: tuple[Any, ...], length: int) -> CachedGenerator | None:
        """Return the kept generator if it has these options and capacity for ``length`` tokens.

        The cache is then empty.

        A generator that does not fit is dropped at once: two key-value caches might need more than the memory.
        """
        kept, self._kept = self._kept, None
        return kept if kept and kept.sampling == sampling and kept.capacity >= length else None

    def clear(self) -> None:
        """Drop what is kept."""
        self._kept = None

    def keep(self, generator: CachedGenerator) -> None:
        """Keep a generator whose answer has ended."""
        self._kept = generator


def capacity_for(length: int, context: int) -> int:
    """Return the capacity of a new generator for ``length`` tokens: later prompts of the conversation are longer."""
    return min(context, max(2 * length, MIN_CAPACITY_TOKENS))


def common_prefix_length(computed: Any, tokens: Sequence[int]) -> int:
    """Return how many tokens of a prompt need not be computed again: at most all but the last one."""
    size = min(len(computed), len(tokens) - 1)
    if size <= 0:
        return 0
    different = np.flatnonzero(np.asarray(computed[:size]) != np.asarray(tokens[:size]))
    return int(different[0]) if len(different) else size
