"""The caches of a llama-server: how many tokens each layer keeps, and their sizes. Pure."""

from __future__ import annotations

import math
from typing import Final

from workers.backends.llamacpp.memory.launch import Launch
from workers.backends.llamacpp.memory.model_shape import LayerCache

CELL_STEP: Final = 256
"""Caches have a multiple of this many cells."""
CHECKPOINT_STEP: Final = 8192
"""Tokens between two checkpoints of a slot whose past cannot be computed from its cache."""
_CACHE_TYPES: Final = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "iq4_nl": (32, 18),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
}
"""Type of a cache → elements and bytes of a block."""


def cells(cache: LayerCache, launch: Launch, windows: int = 0) -> int:
    """Return how many tokens a layer can keep, in each of the streams."""
    whole = _padded(launch.context * (launch.slots if launch.unified else 1))
    if not cache.window or launch.whole_windows:
        return whole
    kept = _padded(cache.window * (launch.slots if launch.unified else 1) + launch.micro_batch)
    return min(kept, _padded(windows * (launch.slots if launch.unified else 1)) if windows else whole)


def cache_bytes(cache: LayerCache, launch: Launch, windows: int = 0) -> float:
    """Return the size of a layer's caches."""
    each = _typed(cache.key, launch.key_type) + _typed(cache.value, launch.value_type)
    return each * cells(cache, launch, windows) * launch.streams + cache.state * launch.slots


def checkpoint_bytes(cache: LayerCache, launch: Launch, windows: int) -> float:
    """Return the size of the copies from which a layer goes on, where its past cannot be computed from its cache."""
    if not cache.state and (not cache.window or launch.whole_windows):
        return 0
    count = min(launch.checkpoints, 1 + (windows or launch.context) // CHECKPOINT_STEP)
    kept = _typed(cache.key, launch.key_type) + _typed(cache.value, launch.value_type)
    return count * launch.slots * (kept * min(cache.window, windows or launch.context) + cache.state)


def _typed(elements: int, kind: str) -> float:
    block, size = _CACHE_TYPES.get(kind, (1, 2))
    return elements / block * size


def _padded(tokens: int) -> int:
    return math.ceil(tokens / CELL_STEP) * CELL_STEP
