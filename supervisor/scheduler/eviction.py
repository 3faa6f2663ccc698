"""Who must leave, so that a model can be loaded. Pure, and silent: asking is not acting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.models.recipes import NpuSharing


class LoadedModel(NamedTuple):
    """Somebody who holds a loaded place."""

    model: str
    type: str
    last_use: float
    busy: bool
    pinned: bool = False
    movable: bool = True
    """False while it is being loaded or is already promised to somebody: it can neither stay idle nor leave."""
    leaving: bool = False
    """It is on its way out: its place and memory come free without anybody's doing."""
    draining: bool = False
    """It was asked to make room before: asking somebody else now would let nobody ever finish."""
    memory: int = 0
    npu: str = ""
    """How it holds the NPU: a value of :class:`~protocol.models.recipes.NpuSharing`, empty if it does not."""


class LoadRequest(NamedTuple):
    """The model that wants a place, and what it needs (bytes; 0: unknown)."""

    model: str
    type: str
    memory: int = 0
    npu: str = ""
    """As a tenant's."""


class Capacity(NamedTuple):
    """What there is: places per type, and bytes of memory free right now (0: unknown)."""

    max_loaded: int
    memory: int = 0


class Fits(NamedTuple):
    """There is room now."""


class Wait(NamedTuple):
    """There will be room when those who are leaving have left, or a load has ended."""


class Evict(NamedTuple):
    """These must leave first, idle ones at once, busy ones when they are done."""

    models: list[str]


class Blocked(NamedTuple):
    """Nobody may leave: these are pinned."""

    pins: list[str]


Verdict = Fits | Wait | Evict | Blocked


def decide_eviction(request: LoadRequest, loaded_models: Sequence[LoadedModel], budget: Capacity) -> Verdict:
    """Return how ``wish`` gets its place.

    The NPU first: whoever cannot be there beside ``wish`` leaves it, busy or not.  Then places: least recently used idle tenant of the same type, else the least recently used busy one,
    never a pinned one.  Then memory: what is free, plus what those who leave give back; idle tenants of any
    type leave, least recently used first, until it suffices.  When even that does not, it is tried all the
    same: the estimate is coarse, and a model file is mapped, not copied.
    """
    on_npu = [loaded for loaded in loaded_models if _npu_conflict(request, loaded)]
    leave = [loaded for loaded in on_npu if not loaded.leaving]
    if pins := sorted(loaded.model for loaded in leave if loaded.pinned):
        return Blocked(pins)
    if not all(loaded.movable for loaded in leave):
        return Wait()
    same_type = [loaded for loaded in loaded_models if loaded.type == request.type]
    staying = [loaded for loaded in same_type if not loaded.leaving and loaded not in leave]
    if len(staying) >= budget.max_loaded:
        movable = sorted(
            (loaded for loaded in staying if loaded.movable and not loaded.pinned),
            key=lambda loaded: (loaded.busy, not loaded.draining, loaded.last_use),
        )
        surplus = len(staying) - budget.max_loaded + 1
        if len(movable) < surplus:
            if all(loaded.pinned for loaded in staying):
                return Blocked(sorted(loaded.model for loaded in staying))
            return Wait()
        leave += movable[:surplus]
    leave += _evicted_for_memory(request, loaded_models, leave, budget)
    if leave:
        return Evict([loaded.model for loaded in leave])
    if (
        on_npu
        or len(same_type) >= budget.max_loaded
        or (_missing_memory(request, budget, ()) and any(loaded.leaving for loaded in loaded_models))
    ):
        return Wait()
    return Fits()


def _npu_conflict(request: LoadRequest, loaded: LoadedModel) -> bool:
    """Return whether the two cannot be on the NPU together."""
    if not request.npu or not loaded.npu:
        return False
    return NpuSharing.EXCLUSIVE in (request.npu, loaded.npu) or request.type == loaded.type


def _missing_memory(request: LoadRequest, budget: Capacity, giving: Sequence[LoadedModel]) -> int:
    if not request.memory or not budget.memory:
        return 0
    return max(0, request.memory - budget.memory - sum(loaded.memory for loaded in giving))


def _evicted_for_memory(
    request: LoadRequest, loaded_models: Sequence[LoadedModel], leave: Sequence[LoadedModel], budget: Capacity
) -> list[LoadedModel]:
    giving = [*leave, *(loaded for loaded in loaded_models if loaded.leaving)]
    idle = sorted(
        (
            loaded
            for loaded in loaded_models
            if loaded.movable and not loaded.busy and not loaded.pinned and not loaded.leaving and loaded not in leave
        ),
        key=lambda loaded: loaded.last_use,
    )
    more: list[LoadedModel] = []
    while idle and _missing_memory(request, budget, [*giving, *more]):
        more.append(idle.pop(0))
    return more
