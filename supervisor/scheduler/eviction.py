"""Which models must be unloaded so that another one can be loaded. Pure: it only answers."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from protocol.models.recipes import NpuSharing
from supervisor.scheduler.policy import GroupPolicy


class EvictionReason(enum.StrEnum):
    """A resource that another model needs and an evicted one has."""

    NPU = "npu"
    LIMIT = "max_loaded_models"
    MEMORY = "memory"
    GROUP = "group"
    """A group that does not let both be loaded."""


class LoadedModel(NamedTuple):
    """A model that is loaded, or about to be."""

    model: str
    type: str
    last_use: float
    busy: bool
    pinned: bool = False
    movable: bool = True
    """False while it is being loaded, when it cannot be evicted."""
    leaving: bool = False
    """It is being unloaded, or is to be evicted for another one: what it holds becomes free anyway."""
    draining: bool = False
    """It was chosen before. Choosing another one now would drain one model after the other, and evict none."""
    memory: int = 0
    npu: str = ""
    """How it holds the NPU: a value of :class:`~protocol.models.recipes.NpuSharing`, empty if it does not."""
    groups: frozenset[str] = frozenset()


class LoadRequest(NamedTuple):
    """The model to load, and what it needs (bytes; 0: unknown)."""

    model: str
    type: str
    memory: int = 0
    npu: str = ""
    """As in :class:`LoadedModel`."""
    groups: frozenset[str] = frozenset()


class Capacity(NamedTuple):
    """How many models of a type may be loaded, bytes of memory free right now (0: unknown), and what groups allow."""

    max_loaded: int
    memory: int = 0
    groups: Mapping[str, GroupPolicy] = {}


class Fits(NamedTuple):
    """It can be loaded now."""


class Wait(NamedTuple):
    """It can be loaded once models that are being unloaded are gone, or a load has ended."""


class Evict(NamedTuple):
    """These must be unloaded first: idle ones at once, busy ones when their requests have ended."""

    models: list[str]
    reasons: list[EvictionReason]
    """One for each of them."""


class Blocked(NamedTuple):
    """Only these pinned models are in the way. ``reason``: why one of them would have to leave."""

    pins: list[str]
    reason: EvictionReason


Verdict = Fits | Wait | Evict | Blocked


def decide_eviction(request: LoadRequest, loaded_models: Sequence[LoadedModel], capacity: Capacity) -> Verdict:
    """Return how the model of ``request`` can be loaded.

    First come the models that cannot be loaded beside it, because of the NPU or of an exclusive group: they are
    evicted, busy or not. Then come the limits on models of its groups and of its type: the least recently used idle one
    is evicted, else the least recently used busy one, never a pinned one. Last comes memory: what is free, plus what
    evicted models give back. Idle models of any type are evicted, least recently used first, until it suffices. If it
    never does, the load is tried anyway: the estimate is coarse, and a model file is mapped, not copied.
    """
    conflicts = _conflicts(request, loaded_models, capacity)
    evicted = [loaded for loaded, _ in conflicts if not loaded.leaving]
    reasons = [reason for loaded, reason in conflicts if not loaded.leaving]
    if any(loaded.pinned for loaded in evicted):
        return _blocked(evicted, next(reason for loaded, reason in conflicts if loaded in evicted and loaded.pinned))
    if not all(loaded.movable for loaded in evicted):
        return Wait()
    full = False
    for rivals, most, reason in _limits(request, loaded_models, capacity):
        staying = [loaded for loaded in rivals if not loaded.leaving and loaded not in evicted]
        surplus = len(staying) - most + 1
        if surplus > sum(not loaded.pinned for loaded in staying):
            return _blocked(staying, reason)
        movable = _in_eviction_order(staying)
        if surplus > len(movable):
            return Wait()
        evicted += movable[: max(0, surplus)]
        reasons += [reason] * max(0, surplus)
        full = full or len(rivals) >= most
    for_memory = _evicted_for_memory(request, loaded_models, evicted, capacity)
    evicted += for_memory
    reasons += [EvictionReason.MEMORY] * len(for_memory)
    if evicted:
        return Evict([loaded.model for loaded in evicted], reasons)
    for_leaving = _missing_memory(request, capacity, ()) and any(loaded.leaving for loaded in loaded_models)
    return Wait() if conflicts or full or for_leaving else Fits()


def models_over_limits(loaded_models: Sequence[LoadedModel], capacity: Capacity) -> dict[str, EvictionReason]:
    """Return the models that must leave because changed settings no longer allow them beside others.

    Of two sides that exclude each other, the busy one stays, else the one used last. A pinned model stays, whatever its
    groups say.
    """
    staying = [loaded for loaded in loaded_models if not loaded.leaving]
    leaving: dict[str, EvictionReason] = {}

    def leave(over: Sequence[LoadedModel], reason: EvictionReason) -> None:
        leaving.update((loaded.model, reason) for loaded in over)
        staying[:] = [loaded for loaded in staying if loaded not in over]

    for name, group in sorted(capacity.groups.items()):
        inside = [loaded for loaded in staying if name in loaded.groups]
        outside = [loaded for loaded in staying if name not in loaded.groups]
        if group.exclusive and inside and outside:
            leave(_side_to_leave(inside, outside), EvictionReason.GROUP)
        if group.limit:
            leave(_surplus([loaded for loaded in inside if loaded in staying], group.limit), EvictionReason.GROUP)
    for model_type in sorted({loaded.type for loaded in staying}):
        same_type = [loaded for loaded in staying if loaded.type == model_type]
        leave(_surplus(same_type, capacity.max_loaded), EvictionReason.LIMIT)
    return leaving


def _surplus(loaded_models: list[LoadedModel], most: int) -> list[LoadedModel]:
    return _in_eviction_order(loaded_models)[: max(0, len(loaded_models) - most)]


def _side_to_leave(inside: list[LoadedModel], outside: list[LoadedModel]) -> list[LoadedModel]:
    sides = [side for side in (inside, outside) if not any(loaded.pinned for loaded in side)]
    if not sides:
        return []

    def staying_value(side: list[LoadedModel]) -> tuple[bool, bool, float]:
        draining, busy = any(loaded.draining for loaded in side), any(loaded.busy for loaded in side)
        return not draining, busy, max(loaded.last_use for loaded in side)

    return [loaded for loaded in min(sides, key=staying_value) if loaded.movable]


def _blocked(loaded_models: Sequence[LoadedModel], reason: EvictionReason) -> Blocked:
    return Blocked(sorted(loaded.model for loaded in loaded_models if loaded.pinned), reason)


def _in_eviction_order(loaded_models: Sequence[LoadedModel]) -> list[LoadedModel]:
    """Return the models that may be evicted, in the order in which they leave."""
    return sorted(
        (loaded for loaded in loaded_models if loaded.movable and not loaded.pinned),
        key=lambda loaded: (loaded.busy, not loaded.draining, loaded.last_use),
    )


def _conflicts(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], capacity: Capacity
) -> list[tuple[LoadedModel, EvictionReason]]:
    """Return the models that cannot be loaded beside the wanted one, and why."""
    exclusive = {name for name, group in capacity.groups.items() if group.exclusive}
    found = []
    for loaded in loaded_models:
        if _npu_conflict(request, loaded):
            found.append((loaded, EvictionReason.NPU))
        elif exclusive & (request.groups ^ loaded.groups):
            found.append((loaded, EvictionReason.GROUP))
    return found


def _limits(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], capacity: Capacity
) -> Iterator[tuple[list[LoadedModel], int, EvictionReason]]:
    """Yield the models that are counted together with the wanted one, and how many of them there may be."""
    for name in sorted(request.groups & capacity.groups.keys()):
        if most := capacity.groups[name].limit:
            yield [loaded for loaded in loaded_models if name in loaded.groups], most, EvictionReason.GROUP
    same_type = [loaded for loaded in loaded_models if loaded.type == request.type]
    yield same_type, capacity.max_loaded, EvictionReason.LIMIT


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
