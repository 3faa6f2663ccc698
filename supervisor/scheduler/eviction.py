"""Which models must be unloaded so that another one can be loaded. Pure: it only answers."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import NpuSharing
from supervisor.scheduler.memory.fitting import (
    AvailableMemory,
    ModelMemory,
    Shortfall,
    fewest,
    largest_context,
    least_need,
    missing,
    more,
    shortfall_of,
)
from supervisor.scheduler.policy import GroupPolicy

EVICTED: Final = "it is evicted for another model"
"""A reason for an engine's end, for the log."""


class EvictionReason(enum.StrEnum):
    """A resource that another model needs and an evicted one has."""

    NPU = "npu"
    LIMIT = "max_loaded_models"
    MEMORY = "memory"
    GROUP = "group"
    """A group that does not let both be loaded."""
    PRESSURE = "pressure"
    """No other model needs it, but memory is nearly used up."""


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
    memory: ModelMemory = ModelMemory()
    npu: str = ""
    """How it holds the NPU: a value of :class:`~protocol.models.recipes.NpuSharing`, empty if it does not."""
    groups: frozenset[str] = frozenset()
    node: str = HEAD


class LoadRequest(NamedTuple):
    """The model to load, what it needs, and the node where it would be loaded."""

    model: str
    type: str
    estimate: MemoryEstimate = MemoryEstimate()
    npu: str = ""
    """As in :class:`LoadedModel`."""
    groups: frozenset[str] = frozenset()
    node: str = HEAD


class LoadLimits(NamedTuple):
    """How many models of a type may be loaded on a node, the memory that it has, and what groups allow on all nodes."""

    max_loaded: int
    memory: AvailableMemory = AvailableMemory()
    groups: Mapping[str, GroupPolicy] = {}


class Fits(NamedTuple):
    """It can be loaded now. ``context``: the one that was chosen for each request; 0 if none was to be chosen."""

    context: int = 0


class Wait(NamedTuple):
    """It can be loaded once models that are being unloaded are gone, or a load has ended. ``memory``: it only lacks that."""

    memory: bool = False


class Evict(NamedTuple):
    """These must be unloaded first: idle ones at once, busy ones when their requests have ended."""

    models: list[str]
    reasons: list[EvictionReason]
    """One for each of them."""
    waits: bool = False
    """Those that leave for memory stay until all of them are idle: fewer of them would not help."""


class Blocked(NamedTuple):
    """Only these pinned models are in the way. ``reason``: why one of them would have to leave."""

    pins: list[str]
    reason: EvictionReason
    shortfall: Shortfall | None = None
    """What is missing, if the reason is memory."""


class Insufficient(NamedTuple):
    """The node does not have the memory, whatever is unloaded."""

    shortfall: Shortfall


Verdict = Fits | Wait | Evict | Blocked | Insufficient


def decide_eviction(request: LoadRequest, loaded_models: Sequence[LoadedModel], limits: LoadLimits) -> Verdict:
    """Return how the model of ``request`` can be loaded on its node. Of models on other nodes, only the groups matter.

    A model for which there is not enough memory anyway evicts nothing. Otherwise, first come the models that cannot be
    loaded beside it, because of the NPU or of an exclusive group: they are evicted, busy or not. Then come the limits on
    models of its groups and of its type: the least recently used idle one is evicted, else the least recently used busy
    one, never a pinned one. Last comes memory: see :func:`_for_memory`.
    """
    here = [loaded for loaded in loaded_models if loaded.node == request.node]
    impossible = _impossible(request, here, limits.memory)
    if impossible is not None:
        return impossible
    conflicts = _conflicts(request, loaded_models, limits)
    evicted = [loaded for loaded, _ in conflicts if not loaded.leaving]
    reasons = [reason for loaded, reason in conflicts if not loaded.leaving]
    if any(loaded.pinned for loaded in evicted):
        return _blocked(evicted, next(reason for loaded, reason in conflicts if loaded in evicted and loaded.pinned))
    if not all(loaded.movable for loaded in evicted):
        return Wait()
    full = False
    for rivals, most, reason in _limits(request, loaded_models, limits):
        staying = [loaded for loaded in rivals if not loaded.leaving and loaded not in evicted]
        surplus = len(staying) - most + 1
        if surplus > sum(not loaded.pinned for loaded in staying):
            return _blocked(staying, reason)
        movable = in_eviction_order(staying)
        if surplus > len(movable):
            return Wait()
        evicted += movable[: max(0, surplus)]
        reasons += [reason] * max(0, surplus)
        full = full or len(rivals) >= most
    evicted_here = [loaded for loaded in evicted if loaded.node == request.node]
    for_memory, lacks_memory = _for_memory(request, here, evicted_here, limits.memory)
    if evicted or for_memory:
        reasons += [EvictionReason.MEMORY] * len(for_memory)
        waits = any(loaded.busy for loaded in for_memory)
        return Evict([loaded.model for loaded in (*evicted, *for_memory)], reasons, waits)
    if conflicts or full or lacks_memory:
        return Wait(memory=not conflicts and not full)
    staying = [loaded for loaded in here if not loaded.leaving]
    return Fits(largest_context(request.estimate, limits.memory.beside(loaded.memory for loaded in staying)))


def _blocked(loaded_models: Sequence[LoadedModel], reason: EvictionReason) -> Blocked:
    return Blocked(sorted(loaded.model for loaded in loaded_models if loaded.pinned), reason)


def in_eviction_order(loaded_models: Iterable[LoadedModel]) -> list[LoadedModel]:
    """Return the models that may be evicted, in the order in which they leave."""
    return sorted(
        (loaded for loaded in loaded_models if loaded.movable and not loaded.pinned),
        key=lambda loaded: (loaded.busy, not loaded.draining, loaded.last_use),
    )


def _conflicts(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], limits: LoadLimits
) -> list[tuple[LoadedModel, EvictionReason]]:
    """Return the models that cannot be loaded beside the wanted one, and why."""
    exclusive = {name for name, group in limits.groups.items() if group.exclusive}
    found = []
    for loaded in loaded_models:
        if _npu_conflict(request, loaded):
            found.append((loaded, EvictionReason.NPU))
        elif exclusive & (request.groups ^ loaded.groups):
            found.append((loaded, EvictionReason.GROUP))
    return found


def _limits(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], limits: LoadLimits
) -> Iterator[tuple[list[LoadedModel], int, EvictionReason]]:
    """Yield the models that are counted together with the wanted one, and how many of them there may be."""
    for name in sorted(request.groups & limits.groups.keys()):
        if most := limits.groups[name].limit:
            yield [loaded for loaded in loaded_models if name in loaded.groups], most, EvictionReason.GROUP
    same_type = [loaded for loaded in loaded_models if loaded.node == request.node and loaded.type == request.type]
    yield same_type, limits.max_loaded, EvictionReason.LIMIT


def _npu_conflict(request: LoadRequest, loaded: LoadedModel) -> bool:
    """Return whether the two cannot be on the NPU together."""
    if not request.npu or not loaded.npu or request.node != loaded.node:
        return False
    return NpuSharing.EXCLUSIVE in (request.npu, loaded.npu) or request.type == loaded.type


def _impossible(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], available: AvailableMemory
) -> Blocked | Insufficient | None:
    """Return why there is too little memory even if every model leaves that may; None if there is enough."""
    pinned = [loaded for loaded in loaded_models if loaded.pinned and not loaded.leaving]
    others = [loaded.memory.used for loaded in loaded_models if not loaded.pinned or loaded.leaving]
    most = available.bounded(more(available.beside(loaded.memory for loaded in pinned), available.freeing, *others))
    need = least_need(request.estimate)
    shortfall = shortfall_of(need, most, available)
    if shortfall is None:
        return None
    with_pinned = available.bounded(more(most, *(loaded.memory.whole for loaded in pinned)))
    unpinned = shortfall_of(need, with_pinned, available)
    if unpinned is not None:
        return Insufficient(unpinned)
    holding = [loaded for loaded in pinned if loaded.memory.whole.get(shortfall.capacity.place)]
    return Blocked(sorted(loaded.model for loaded in holding), EvictionReason.MEMORY, shortfall)


def _for_memory(
    request: LoadRequest,
    loaded_models: Sequence[LoadedModel],
    evicted: Sequence[LoadedModel],
    available: AvailableMemory,
) -> tuple[list[LoadedModel], bool]:
    """Return the models that leave for memory besides the ``evicted`` ones, and whether there is too little of it now.

    Enough idle models of any type, as few as possible, of these the least recently used. If they do not suffice, as few
    busy ones as possible as well. None if what leaves anyway suffices, or if only a model that is being loaded is in the way.
    """
    need = least_need(request.estimate)
    staying = [loaded for loaded in loaded_models if not loaded.leaving]
    now = available.beside(loaded.memory for loaded in staying)
    if not missing(need, now):
        return [], False
    leaving = [loaded.memory.used for loaded in loaded_models if loaded.leaving]
    free = more(now, available.freeing, *leaving, *(loaded.memory.whole for loaded in evicted))
    rest = in_eviction_order([loaded for loaded in staying if loaded not in evicted])
    idle = [loaded for loaded in rest if not loaded.busy]
    chosen = _fewest(idle, need, free)
    if chosen is not None:
        return chosen, True
    with_idle = more(free, *(loaded.memory.whole for loaded in idle))
    busy = _fewest([loaded for loaded in rest if loaded.busy], need, with_idle)
    if busy is None:
        return [], True
    return [*busy, *(_fewest(idle, need, more(free, *(loaded.memory.whole for loaded in busy))) or [])], True


def _fewest(
    candidates: Sequence[LoadedModel], need: Mapping[str, int], free: Mapping[str, int]
) -> list[LoadedModel] | None:
    chosen = fewest([loaded.memory.whole for loaded in candidates], missing(need, free))
    return None if chosen is None else [candidates[index] for index in chosen]
