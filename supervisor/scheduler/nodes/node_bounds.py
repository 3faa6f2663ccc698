"""What each node can offer at best, so that the best one for a load is found without a decision about each of them. Pure.

A bound is never worse than the offer itself (:class:`~supervisor.scheduler.nodes.node_choice.Offer`). Offers are made in the
order of the bounds, until no bound is better than the best offer. The figures of a node are kept until something changes there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from protocol.models.memory import HOST
from supervisor.scheduler.eviction import LoadedModel, LoadLimits, in_eviction_order
from supervisor.scheduler.nodes.node_choice import Effort
from supervisor.scheduler.nodes.reservations import LoadReservation

Bound = tuple[object, ...]
"""The first values of :attr:`~supervisor.scheduler.nodes.node_choice.Offer.order`, or lower ones."""

LOWEST: Final[Bound] = ()
"""Of a node of which nothing is known."""


class Demand(NamedTuple):
    """What a model needs at least on a node, in bytes: of the host, and of all devices with memory of their own."""

    type: str
    host: int
    devices: int = 0
    rounding: int = 0
    """By so much each figure may be too high or too low."""


class _Leaver(NamedTuple):
    """A model that may be evicted, and what that frees on the host and on the devices."""

    last_use: float
    host: int
    devices: int


class BoundFigures(NamedTuple):
    """What counts for the bounds of a node, whichever of the models that are about to be loaded there come before a load."""

    read: bool
    """Whether its memory was ever read."""
    counts: Mapping[str, int]
    """Type → models there."""
    most_models: int
    """Of one type."""
    then: Mapping[str, int]
    """Type → models that a load may have to count there, at most, if nothing leaves."""
    host: tuple[float, float]
    """Free bytes: at most, and at least. Infinite if they are not known."""
    devices: Sequence[tuple[int, int]]
    """The same for each device."""
    freed: tuple[float, int]
    """Bytes of the host and of all devices that may be free once all that leaves anyway is gone, at most."""
    idle: Sequence[_Leaver]
    """Those that leave for nothing else, by last use."""
    busy: Sequence[_Leaver]
    oldest: float
    """The last use of the model that was used longest ago, of those that are idle or leave for another one; infinite: none."""
    waits: bool
    """Whether a load may have to wait for something that leaves or is being loaded."""


def figures_of(
    loaded: Sequence[LoadedModel], reserved: Sequence[LoadReservation], limits: LoadLimits, *, read: bool
) -> BoundFigures:
    """Return the figures of a node. ``reserved``: what is about to be loaded there."""
    claimed = {key for each in reserved for key in each.claims}
    later = [each.ahead for each in reserved if each.ahead is not None]
    ahead = [each.memory for each in later]
    staying = [each for each in loaded if not each.leaving and each.model not in claimed]
    chosen = [each for each in loaded if not each.leaving and each.model in claimed]
    most = limits.memory.beside(each.memory for each in staying)
    least = limits.memory.beside([*(each.memory for each in (*staying, *chosen)), *ahead])
    freeing = limits.memory.freeing
    gone = [_leaver(each) for each in loaded if each.leaving or each.model in claimed]
    movable = in_eviction_order(staying)
    idle = sorted(_leaver(each) for each in movable if not each.busy)
    on_devices = sum(max(0, bytes_) + freeing.get(place, 0) for place, bytes_ in most.items() if place != HOST)
    return BoundFigures(
        read=read,
        counts=Counter(each.type for each in loaded),
        most_models=limits.max_loaded,
        then=Counter(each.type for each in (*staying, *chosen, *later)),
        host=(most.get(HOST, math.inf), least.get(HOST, math.inf)),
        devices=[(most[place], least[place]) for place in most if place != HOST],
        freed=(
            most.get(HOST, math.inf) + freeing.get(HOST, 0) + sum(each.host for each in gone),
            on_devices + sum(each.devices for each in gone),
        ),
        idle=idle,
        busy=sorted(_leaver(each) for each in movable if each.busy),
        oldest=min((each.last_use for each in (*idle, *map(_leaver, chosen))), default=math.inf),
        waits=bool(gone or ahead) or any(freeing.values()) or not all(each.movable for each in loaded),
    )


def bound_of(
    figures: BoundFigures, demand: Demand, *, has_files: bool = True, below: int = Effort.MORE_MEMORY
) -> Bound:
    """Return a bound of the node's offer for a load. ``below``: efforts from this one on need no exact bound."""
    known, lacks_files = Effort.NONE if figures.read else Effort.UNKNOWN, not has_files
    host, devices = demand.host - demand.rounding, demand.devices - demand.rounding
    if host <= figures.host[0] and figures.counts.get(demand.type, 0) < figures.most_models:
        large = [least for most, least in figures.devices if most >= devices]
        if devices <= 0 or large or devices <= sum(max(0, most) for most, _ in figures.devices):
            left = _least_left(figures, demand, min(large, default=None))
            return known, lacks_files, (0, 0.0, 0), 0, max(0, left)
    if below <= Effort.IDLE_MODELS:
        return (Effort.IDLE_MODELS,)
    last_use, lacking = _evict(figures.idle, host - figures.freed[0], devices - figures.freed[1])
    if figures.waits and figures.then.get(demand.type, 0) >= figures.most_models and figures.oldest < math.inf:
        # There may be too many models: then one leaves, whether or not it is its memory that is lacking.
        return max(known, Effort.IDLE_MODELS), lacks_files, (0, figures.oldest, 1)
    if max(lacking) <= 0 and figures.oldest < math.inf:
        return max(known, Effort.IDLE_MODELS), lacks_files, (0, max(last_use, figures.oldest), 1)
    if below <= Effort.BUSY_MODELS:
        return (Effort.BUSY_MODELS,)
    if figures.waits:
        least = min((each for _, each in figures.devices), default=None)
        return Effort.BUSY_MODELS, lacks_files, (0, 0.0, 0), 0, _least_left(figures, demand, least)
    last_use, lacking = _evict(figures.busy, *lacking)
    if max(lacking) <= 0 and figures.busy:
        return Effort.BUSY_MODELS, lacks_files, (1, max(last_use, figures.busy[0].last_use), 1)
    return (Effort.PINNED_MODELS,)


def _least_left(figures: BoundFigures, demand: Demand, device: int | None) -> float:
    """Return how little may be free beside a load. ``device``: what is free at least on the one that it uses; None: unknown."""
    left = []
    if demand.host and figures.host[1] < math.inf:
        left.append(figures.host[1] - demand.host - demand.rounding)
    if demand.devices:
        left.append(device - demand.devices - demand.rounding if device is not None else -math.inf)
    return min(left, default=0)


def _evict(leavers: Sequence[_Leaver], host: float, devices: float) -> tuple[float, tuple[float, float]]:
    """Let models leave, those that were used longest ago first, until nothing is lacking.

    Return the last use of the last one: one that was not used before must leave. Then what is lacking still.
    """
    last_use = -math.inf
    for each in leavers:
        if host <= 0 and devices <= 0:
            break
        last_use, host, devices = each.last_use, host - each.host, devices - each.devices
    return last_use, (host, devices)


def _leaver(loaded: LoadedModel) -> _Leaver:
    whole = loaded.memory.whole
    host = whole.get(HOST, 0)
    return _Leaver(loaded.last_use, host, sum(whole.values()) - host)
