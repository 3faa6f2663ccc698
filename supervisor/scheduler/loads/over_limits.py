"""Which loaded models must leave because changed settings no longer allow them beside others. Pure: it only answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.scheduler.eviction import EvictionReason, LoadedModel, in_eviction_order
from supervisor.scheduler.policy import GroupPolicy


def models_over_limits(
    loaded_models: Sequence[LoadedModel], max_loaded: int, groups: Mapping[str, GroupPolicy]
) -> dict[str, EvictionReason]:
    """Return the models that must leave because changed settings no longer allow them beside others.

    Of two sides that exclude each other, the busy one stays, else the one used last. A pinned model stays, whatever its
    groups say.
    """
    staying = [loaded for loaded in loaded_models if not loaded.leaving]
    leaving: dict[str, EvictionReason] = {}

    def leave(over: Sequence[LoadedModel], reason: EvictionReason) -> None:
        leaving.update((loaded.model, reason) for loaded in over)
        staying[:] = [loaded for loaded in staying if loaded not in over]

    for name, group in sorted(groups.items()):
        inside = [loaded for loaded in staying if name in loaded.groups]
        outside = [loaded for loaded in staying if name not in loaded.groups]
        if group.exclusive and inside and outside:
            leave(_side_to_leave(inside, outside), EvictionReason.GROUP)
        if group.limit:
            leave(_surplus([loaded for loaded in inside if loaded in staying], group.limit), EvictionReason.GROUP)
    for counted in sorted({(loaded.node, loaded.type) for loaded in staying}):
        same_type = [loaded for loaded in staying if (loaded.node, loaded.type) == counted]
        leave(_surplus(same_type, max_loaded), EvictionReason.LIMIT)
    return leaving


def _surplus(loaded_models: list[LoadedModel], most: int) -> list[LoadedModel]:
    return in_eviction_order(loaded_models)[: max(0, len(loaded_models) - most)]


def _side_to_leave(inside: list[LoadedModel], outside: list[LoadedModel]) -> list[LoadedModel]:
    sides = [side for side in (inside, outside) if not any(loaded.pinned for loaded in side)]
    if not sides:
        return []

    def staying_value(side: list[LoadedModel]) -> tuple[bool, bool, float]:
        draining, busy = any(loaded.draining for loaded in side), any(loaded.busy for loaded in side)
        return not draining, busy, max(loaded.last_use for loaded in side)

    return [loaded for loaded in min(sides, key=staying_value) if loaded.movable]
