"""How much memory another model may take, which loaded models free enough of it, and what to change if none do. Pure.

Memory that an engine has reserved but not touched is still free for the kernel. So what a loaded model needs is compared with
what it holds: only the difference is subtracted from the free memory. A model that is half loaded is therefore counted
once, whatever part of its memory it already holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.models.memory import HOST, Capacity, MemoryEstimate

AUTOMATIC: Final = -1
"""A reserve in proportion to what the place has."""
LEAST_CONTEXT: Final = 2048
"""The smallest context that is chosen automatically, unless the model's own is smaller."""
CONTEXT_STEP: Final = 256
"""A context that is chosen automatically is a multiple of this, or the model's own."""
_RESERVED_SHARE: Final = 20
"""An automatic reserve is this fraction of the place: a twentieth."""
_MOST_RESERVED: Final = 1 << 30


class ModelMemory(NamedTuple):
    """What a loaded model takes, in bytes by place."""

    need: Mapping[str, int] = {}
    """What it was expected to need, all in all."""
    used: Mapping[str, int] = {}
    """What it holds of that now, mapped model files included."""

    @property
    def untouched(self) -> dict[str, int]:
        """What it may still take, although it is free now."""
        return {place: max(0, need - self.used.get(place, 0)) for place, need in self.need.items()}

    @property
    def whole(self) -> dict[str, int]:
        """What another model gets if this one leaves."""
        return {place: max(self.need.get(place, 0), self.used.get(place, 0)) for place in {*self.need, *self.used}}


class AvailableMemory(NamedTuple):
    """The memory of a node as it was read last. A place that is not listed has enough for anything."""

    capacities: Mapping[str, Capacity] = {}
    host_reserve: int = AUTOMATIC
    """Bytes of the host that models never get."""
    device_reserve: int = AUTOMATIC
    """The same for each device."""
    freeing: Mapping[str, int] = {}
    """What engines that have just ended may still be giving back."""
    node: str = ""
    """The name of the node; empty if the server has only one."""

    def reserve(self, place: str) -> int:
        """Return the bytes of a place that models never get."""
        reserve = self.host_reserve if place == HOST else self.device_reserve
        return _automatic_reserve(self.capacities[place]) if reserve == AUTOMATIC else reserve

    def beside(self, staying: Iterable[ModelMemory]) -> dict[str, int]:
        """Return what each place has for another model beside these; it may be negative."""
        free = {place: each.free - self.reserve(place) for place, each in self.capacities.items()}
        for memory in staying:
            for place in free:
                free[place] -= memory.untouched.get(place, 0)
        return free

    def bounded(self, free: Mapping[str, int]) -> dict[str, int]:
        """Return ``free``, but no more than models may have at all: what an engine gives back may be free already."""
        return {
            place: min(bytes_, self.capacities[place].total - self.reserve(place)) for place, bytes_ in free.items()
        }


def _automatic_reserve(capacity: Capacity) -> int:
    return min(capacity.total // _RESERVED_SHARE, _MOST_RESERVED)


def more(free: Mapping[str, int], *amounts: Mapping[str, int]) -> dict[str, int]:
    """Return ``free`` with these amounts added."""
    return {place: bytes_ + sum(each.get(place, 0) for each in amounts) for place, bytes_ in free.items()}


def missing(need: Mapping[str, int], free: Mapping[str, int]) -> dict[str, int]:
    """Return how much is missing in which places; a place of which nothing is needed misses nothing."""
    return {
        place: bytes_ - free[place] for place, bytes_ in need.items() if bytes_ and bytes_ > free.get(place, bytes_)
    }


def fewest(releases: Sequence[Mapping[str, int]], lacking: Mapping[str, int]) -> list[int] | None:
    """Return the indexes of the fewest ``releases`` that together cover what is lacking; earlier ones are preferred.

    None if all of them do not suffice.
    """
    for count in range(len(releases) + 1):
        chosen = _choose(releases, dict(lacking), count, 0)
        if chosen is not None:
            return chosen
    return None


def _choose(
    releases: Sequence[Mapping[str, int]], lacking: Mapping[str, int], count: int, start: int
) -> list[int] | None:
    if not lacking:
        return []
    rest = releases[start:]
    # No choice covers one place, or all of them together, if the largest ones do not: this makes the search short.
    if any(sum(nlargest(count, (each.get(place, 0) for each in rest))) < lacking[place] for place in lacking):
        return None
    shares = (sum(min(1.0, each.get(place, 0) / lacking[place]) for place in lacking) for each in rest)
    if sum(nlargest(count, shares)) < len(lacking) - 1e-9:
        return None
    for index in range(start, len(releases)):
        left = {place: amount - releases[index].get(place, 0) for place, amount in lacking.items()}
        chosen = _choose(
            releases, {place: amount for place, amount in left.items() if amount > 0}, count - 1, index + 1
        )
        if chosen is not None:
            return [index, *chosen]
    return None


# ---- the context -------------------------------------------------------------------------------------------------


def least_need(estimate: MemoryEstimate) -> dict[str, int]:
    """Return what a model needs at least: with the smallest context, if the context is to be chosen."""
    return estimate.need(min(LEAST_CONTEXT, estimate.largest_context))


def largest_context(estimate: MemoryEstimate, free: Mapping[str, int]) -> int:
    """Return the largest context that fits, up to the one that may be chosen; 0 if not even the smallest fits."""
    most = estimate.largest_context
    for place, need in estimate.places.items():
        if place in free and need.per_token > 0:
            most = min(most, int((free[place] - need.fixed) / need.per_token / max(1, estimate.slots)))
        elif need.fixed and need.fixed > free.get(place, need.fixed):
            return 0
    chosen = most if most == estimate.largest_context else most // CONTEXT_STEP * CONTEXT_STEP
    return chosen if chosen >= min(LEAST_CONTEXT, estimate.largest_context) else 0


# ---- what is missing, in words -----------------------------------------------------------------------------------


class Shortfall(NamedTuple):
    """A place has too little memory for a model, whatever is evicted."""

    capacity: Capacity
    need: int
    reserve: int
    most: Mapping[str, int]
    """What the model could have at most, by place."""
    node: str = ""
    """As in :class:`AvailableMemory`."""

    @property
    def by_others(self) -> bool:
        """Whether the place is large enough, but other programs hold too much of it."""
        return self.need <= self.capacity.total - self.reserve

    @property
    def figures(self) -> str:
        """Need, total and free, in words."""
        capacity, most = self.capacity, max(0, self.most[self.capacity.place])
        kept = f", of which {size(self.reserve)} are kept free" if self.reserve else ""
        return (
            f"it needs {size(self.need)} of {_name(capacity, self.node)}, which has {size(capacity.total)}{kept};"
            f" {size(capacity.free)} are free now, and at most {size(most)} could be made free for it"
        )


def shortfall_of(need: Mapping[str, int], most: Mapping[str, int], available: AvailableMemory) -> Shortfall | None:
    """Return the place that lacks most; None if none does."""
    lacking = missing(need, most)
    if not lacking:
        return None
    place = max(sorted(lacking), key=lacking.__getitem__)
    return Shortfall(available.capacities[place], need[place], available.reserve(place), most, available.node)


def refusal(model: str, estimate: MemoryEstimate, shortfall: Shortfall, retry_after: float) -> Failure:
    """Return why a model cannot be loaded, and what could be changed. ``retry_after``: if only other programs are in the way."""
    sentences = [f"Model {model} cannot be loaded: {shortfall.figures}"]
    if shortfall.by_others:
        sentences.append("Other programs hold the rest: try again when they have ended")
    if change := _change(estimate, shortfall):
        sentences.append(change)
    message = ". ".join([*sentences, "No model was unloaded for it"])
    pause = retry_after if shortfall.by_others else 0.0
    return Failure(Code.INSUFFICIENT_MEMORY, message, model=model, retry_after=pause)


def _change(estimate: MemoryEstimate, shortfall: Shortfall) -> str:
    """Return what could be changed so that a model fits."""
    place, most = shortfall.capacity.place, shortfall.most
    changes = []
    lower = structs.replace(estimate, largest_context=estimate.context)
    if estimate.context and not estimate.largest_context and (context := largest_context(lower, most)):
        changes.append(f"with ctx_size {context}")
    fewer = (slots for slots in range(estimate.slots - 1, 0, -1) if not missing(_with_slots(estimate, slots), most))
    if slots := next(fewer, 0):
        changes.append(f"with {slots} of {estimate.slots} slots")
    spared = shortfall.reserve - _automatic_reserve(shortfall.capacity)
    if spared > 0 and not missing(least_need(estimate), {**most, place: most[place] + spared}):
        changes.append(f"with a lower {'memory_reserve' if place == HOST else 'device_memory_reserve'}")
    if changes:
        return f"It would fit {' or '.join(changes)}"
    weights = estimate.parts.get("weights", 0)
    alone = f": its weights alone are {size(weights)}" if weights > max(most.values(), default=0) else ""
    return f"Choose a smaller quantization or a smaller model{alone}"


def _with_slots(estimate: MemoryEstimate, slots: int) -> dict[str, int]:
    return least_need(structs.replace(estimate, slots=slots))


def _name(capacity: Capacity, node: str) -> str:
    if capacity.place != HOST:
        return f"device {capacity.name or capacity.place}" + (f" of node {node}" if node else "")
    if capacity.limit:
        return f"the memory that {capacity.limit} allows" + (f" on node {node}" if node else "")
    return f"the memory of node {node}" if node else "this machine's memory"


def size(number: int) -> str:
    """Return a number of bytes for people."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
