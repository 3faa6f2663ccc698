"""On which node a model is loaded. Pure: it only answers.

Each node that suits a model makes an *offer*: what a load would take there. The best offer wins, in this order:

1. where the model fits now, before where idle models must leave, before where something must end first;
2. where its files are, before where they must be copied to;
3. where an eviction costs least: the fewest busy models, and of the idle ones those that were used longest ago;
4. where no other engine of the same model runs;
5. where it leaves least memory free (best fit), so that other nodes can take large models.

What a model needs is only known after a check by a worker, whose figures are for the devices of its node. Before, the size
of its files decides; afterwards, the figures are carried over to the devices of other nodes, until a worker there has
checked it as well.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    Fits,
    Insufficient,
    LoadedModel,
    LoadLimits,
    LoadRequest,
    Verdict,
    Wait,
    decide_eviction,
)
from supervisor.scheduler.memory.fitting import least_need, more

ANYWHERE: Final = ""
"""The place of a need that is known only by its size: it is where the engine computes."""


class Effort(enum.IntEnum):
    """What a load on a node takes, from the least to the most."""

    NONE = 0
    """It fits now."""
    IDLE_MODELS = 1
    """Idle models must leave, or something that leaves anyway."""
    UNKNOWN = 2
    """The memory of the node was never read."""
    BUSY_MODELS = 3
    """Models must leave whose requests have to end first, or a load must end."""
    PINNED_MODELS = 4
    """Only pinned models could make way, or the load may evict none."""
    MORE_MEMORY = 5
    """The node has too little memory, whatever leaves."""


class NodeView(NamedTuple):
    """What a load finds on a node. ``loaded``: as :func:`decide_eviction` wants it."""

    node: str
    loaded: Sequence[LoadedModel]
    limits: LoadLimits
    memory_read: bool = True
    has_files: bool = True


class Offer(NamedTuple):
    """What a load would take on a node."""

    node: str
    verdict: Verdict
    effort: Effort
    has_files: bool = True
    victims: Sequence[LoadedModel] = ()
    siblings: int = 0
    """Other engines of the same model there."""
    left: int = 0
    """Bytes that stay free in the fullest of the places that the model uses."""
    loaded: int = 0
    """Models there."""
    estimate: MemoryEstimate = MemoryEstimate()
    """What the model needs there."""

    @property
    def order(self) -> tuple[object, ...]:
        """The less, the better."""
        busy = sum(each.busy for each in self.victims)
        last_use = max((each.last_use for each in self.victims), default=0.0)
        cost = (busy, last_use, len(self.victims))
        left = self.left if self.effort < Effort.PINNED_MODELS else -self.left
        return self.effort, not self.has_files, cost, self.siblings, left, self.loaded, self.node != HEAD, self.node


def offer_of(
    view: NodeView, request: LoadRequest, *, siblings: Collection[str] = (), may_displace: bool = True
) -> Offer:
    """Return what a load takes on a node. ``siblings``: the other engines of the model, by key.

    ``may_displace``: whether other models may be evicted for it.
    """
    request = request._replace(node=view.node)
    verdict = decide_eviction(request, view.loaded, view.limits)
    evicted = set(verdict.models) if isinstance(verdict, Evict) else set()
    victims = [each for each in view.loaded if each.model in evicted]
    here = [each for each in view.loaded if each.node == view.node]
    effort = _effort(verdict, victims)
    if isinstance(verdict, Evict) and not may_displace:
        effort = Effort.PINNED_MODELS
    return Offer(
        view.node,
        verdict,
        effort if view.memory_read else max(effort, Effort.UNKNOWN),
        has_files=view.has_files,
        victims=victims,
        siblings=sum(each.model in siblings for each in here),
        left=_left(request, here, evicted, view.limits),
        loaded=len(here),
        estimate=request.estimate,
    )


def best(offers: Iterable[Offer], present: str = "") -> Offer | None:
    """Return the best offer; None if there is none. ``present``: the node that was chosen before.

    It is only left for one where the load takes less effort: otherwise, what has begun there would have been in vain.
    """
    offers = list(offers)
    found = min(offers, key=lambda each: each.order, default=None)
    stays = next((each for each in offers if each.node == present), None)
    if found is not None and stays is not None and stays.effort <= found.effort and stays.has_files >= found.has_files:
        return stays
    return found


def nearest(offers: Iterable[Offer]) -> Offer:
    """Return, of offers by which a model cannot be loaded, the one that comes nearest: where the fewest bytes are missing."""

    def lacking(offer: Offer) -> tuple[Effort, int, str]:
        verdict = offer.verdict
        shortfall = verdict.shortfall if isinstance(verdict, Insufficient | Blocked) else None
        missing = shortfall.need - shortfall.most[shortfall.capacity.place] if shortfall is not None else 0
        return offer.effort, missing, offer.node

    return min(offers, key=lacking)


def _effort(verdict: Verdict, victims: Sequence[LoadedModel]) -> Effort:
    if isinstance(verdict, Fits):
        return Effort.NONE
    if isinstance(verdict, Evict):
        return Effort.BUSY_MODELS if any(each.busy for each in victims) else Effort.IDLE_MODELS
    if isinstance(verdict, Wait):
        return Effort.BUSY_MODELS
    return Effort.PINNED_MODELS if isinstance(verdict, Blocked) else Effort.MORE_MEMORY


def _left(request: LoadRequest, here: Sequence[LoadedModel], evicted: Collection[str], limits: LoadLimits) -> int:
    need = least_need(request.estimate)
    staying = [each.memory for each in here if not each.leaving and each.model not in evicted]
    freed = [each.memory.whole for each in here if each.model in evicted]
    free = more(limits.memory.beside(staying), *freed)
    return min((free[place] - bytes_ for place, bytes_ in need.items() if bytes_ and place in free), default=0)


# ---- needs on other devices --------------------------------------------------------------------------------------


def estimate_of_size(size: int) -> MemoryEstimate:
    """Return what is known of a model that no worker has checked: it needs at least the memory of its files."""
    return MemoryEstimate({ANYWHERE: PlaceNeed(size)} if size else {})


def carried_over(estimate: MemoryEstimate, capacities: Mapping[str, Capacity], *, on_devices: bool) -> MemoryEstimate:
    """Return what a model probably needs on a node with this memory, by figures for other devices, or by its size.

    ``on_devices``: whether its engine computes on devices there. What it needs on devices goes to the one with least
    free memory that can have it, or in shares to all of them if it needs more than one; to the host if none has memory of its own.
    """
    devices = [each for place, each in sorted(capacities.items()) if place != HOST] if on_devices else []
    on_host = [need for place, need in estimate.places.items() if place == HOST]
    elsewhere = [need for place, need in estimate.places.items() if place != HOST]
    if devices and not elsewhere:
        on_host, elsewhere = elsewhere, on_host
    if not devices:
        on_host, elsewhere = [*on_host, *elsewhere], []
    places = {HOST: _sum(on_host)} if on_host else {}
    if elsewhere:
        need = _sum(elsewhere)
        bytes_ = least_need(structs.replace(estimate, places={ANYWHERE: need}))[ANYWHERE]
        large = [each for each in devices if each.free >= bytes_] or [each for each in devices if each.total >= bytes_]
        used = [min(large, key=lambda each: each.free)] if large else devices
        total = sum(each.total for each in used)
        places |= {each.place: _share(need, each.total / total if total else 1 / len(used)) for each in used}
    return structs.replace(estimate, places=places)


def _sum(needs: Sequence[PlaceNeed]) -> PlaceNeed:
    return PlaceNeed(
        fixed=sum(each.fixed for each in needs),
        per_token=sum(each.per_token for each in needs),
        mapped=sum(each.mapped for each in needs),
        lazy=sum(each.lazy for each in needs),
    )


def _share(need: PlaceNeed, share: float) -> PlaceNeed:
    return PlaceNeed(
        round(need.fixed * share), need.per_token * share, round(need.mapped * share), round(need.lazy * share)
    )
