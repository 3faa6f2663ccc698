"""Which models must be unloaded, so that another one can be loaded. Pure: it only answers."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from protocol.models.recipes import NpuSharing


class EvictionReason(enum.StrEnum):
    """What another model needs that an evicted one has."""

    NPU = "npu"
    LIMIT = "max_loaded_models"
    MEMORY = "memory"


class LoadedModel(NamedTuple):
    """A model that is loaded, or about to be."""

    model: str
    type: str
    last_use: float
    busy: bool
    pinned: bool = False
    movable: bool = True
    """False while it is being loaded: then it cannot be evicted."""
    leaving: bool = False
    """It is being unloaded, or is to be evicted for another one: what it holds comes free anyway."""
    draining: bool = False
    """It was chosen before: another choice now would drain one model after the other, and evict none."""
    memory: int = 0
    npu: str = ""
    """How it holds the NPU: a value of :class:`~protocol.models.recipes.NpuSharing`, empty if it does not."""


class LoadRequest(NamedTuple):
    """The model that is to be loaded, and what it needs (bytes; 0: unknown)."""

    model: str
    type: str
    memory: int = 0
    npu: str = ""
    """As in :class:`LoadedModel`."""


class Capacity(NamedTuple):
    """How many models of a type may be loaded, and bytes of memory free right now (0: unknown)."""

    max_loaded: int
    memory: int = 0


class Fits(NamedTuple):
    """It can be loaded now."""


class Wait(NamedTuple):
    """It can be loaded when models that are being unloaded are gone, or when a load has ended."""


class Evict(NamedTuple):
    """These must be unloaded first: idle ones at once, busy ones when their requests have ended."""

    models: list[str]
    reasons: list[EvictionReason]
    """One for each of them."""


class Blocked(NamedTuple):
    """No model may be evicted: these are pinned."""

    pins: list[str]


Verdict = Fits | Wait | Evict | Blocked


def decide_eviction(request: LoadRequest, loaded_models: Sequence[LoadedModel], capacity: Capacity) -> Verdict:
    """Return how the model of ``request`` can be loaded.

    The NPU first: a model that cannot be on it beside this one is evicted, busy or not.  Then the number of models: the
    least recently used idle one of the same type is evicted, else the least recently used busy one, never a pinned one.
    Then memory: what is free, plus what evicted models give back; idle models of any type are evicted, the least
    recently used first, until it suffices.  If it never does, the load is tried all the same: the estimate is coarse, and
    a model file is mapped, not copied.
    """
    conflicts = [loaded for loaded in loaded_models if _npu_conflict(request, loaded)]
    evicted = [loaded for loaded in conflicts if not loaded.leaving]
    reasons = [EvictionReason.NPU] * len(evicted)
    if pins := sorted(loaded.model for loaded in evicted if loaded.pinned):
        return Blocked(pins)
    if not all(loaded.movable for loaded in evicted):
        return Wait()
    same_type = [loaded for loaded in loaded_models if loaded.type == request.type]
    staying = [loaded for loaded in same_type if not loaded.leaving and loaded not in evicted]
    if len(staying) >= capacity.max_loaded:
        movable = sorted(
            (loaded for loaded in staying if loaded.movable and not loaded.pinned),
            key=lambda loaded: (loaded.busy, not loaded.draining, loaded.last_use),
        )
        surplus = len(staying) - capacity.max_loaded + 1
        if len(movable) < surplus:
            if all(loaded.pinned for loaded in staying):
                return Blocked(sorted(loaded.model for loaded in staying))
            return Wait()
        evicted += movable[:surplus]
        reasons += [EvictionReason.LIMIT] * surplus
    for_memory = _evicted_for_memory(request, loaded_models, evicted, capacity)
    evicted += for_memory
    reasons += [EvictionReason.MEMORY] * len(for_memory)
    if evicted:
        return Evict([loaded.model for loaded in evicted], reasons)
    if (
        conflicts
        or len(same_type) >= capacity.max_loaded
        or (_missing_memory(request, capacity, ()) and any(loaded.leaving for loaded in loaded_models))
    ):
        return Wait()
    return Fits()


def _npu_conflict(request: LoadRequest, loaded: LoadedModel) -> bool:
    """Return whether the two cannot be on the NPU together."""
    if not request.npu or not loaded.npu:
        return False
    return NpuSharing.EXCLUSIVE in (request.npu, loaded.npu) or request.type == loaded.type


def _missing_memory(request: LoadRequest, capacity: Capacity, freed: Sequence[LoadedModel]) -> int:
    if not request.memory or not capacity.memory:
        return 0
    return max(0, request.memory - capacity.memory - sum(loaded.memory for loaded in freed))


def _evicted_for_memory(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], evicted: Sequence[LoadedModel], capacity: Capacity
) -> list[LoadedModel]:
    freed = [*evicted, *(loaded for loaded in loaded_models if loaded.leaving)]
    idle = sorted(
        (
            loaded
            for loaded in loaded_models
            if loaded.movable and not loaded.busy and not loaded.pinned and not loaded.leaving and loaded not in evicted
        ),
        key=lambda loaded: loaded.last_use,
    )
    more: list[LoadedModel] = []
    while idle and _missing_memory(request, capacity, [*freed, *more]):
        more.append(idle.pop(0))
    return more
