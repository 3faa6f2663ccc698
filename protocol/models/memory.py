"""Memory: what a machine has, and what a loaded model needs, by place. All sizes in bytes. Pure.

A *place* is the host or one device. Models on different places do not compete for memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import structs

from protocol.times import Age

HOST: Final = "host"
"""The place that is the machine's own memory. Any other place is a device, by its PCI address (``0000:c4:00.0``) or its UUID."""


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of one place, as it was read once."""

    place: str
    total: int
    """What the place has, or what a cgroup above this server allows."""
    free: int
    """What new work may use now."""
    limit: str = ""
    """The cgroup that leaves the least free memory; empty if it is the machine itself."""
    name: str = ""
    """A device's product name; empty for the host."""
    used_percent: float | None = None
    """How busy the device was in the last moment; None if unknown."""
    age: Age = 0.0
    """Seconds since it was read. The host is read when it is asked for; a device whose driver hangs gets older."""


class EngineDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device that engines may compute on, as it was last read. A list of them has the order of the driver's numbers."""

    vendor: str
    """``nvidia``, ``amd`` or ``intel``."""
    place: str
    """Where its memory is: :data:`HOST` if it uses the machine's own."""
    uuid: str = ""
    free: int = 0


class PlaceNeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model needs in one place: a fixed part, and a part for each token of the context of all slots together."""

    fixed: int = 0
    per_token: float = 0.0
    mapped: int = 0
    """Of the fixed part: pages of the model's files. The kernel can drop them, but the engine is slow without them."""
    lazy: int = 0
    """Of the whole: what the engine reserves, and touches only while it works."""


class MemoryEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model needs once it is loaded, computed from its files' headers and its options before anything is loaded."""

    places: dict[str, PlaceNeed] = {}
    context: int = 0
    """Context tokens of each request that the options ask for; 0: the engine has none, or it is to be chosen."""
    largest_context: int = 0
    """The largest context that may be chosen automatically, in tokens; 0: nothing is to be chosen."""
    slots: int = 1
    parts: dict[str, int] = {}
    """What the need consists of, for people: ``weights``, ``cache``, ``compute`` …"""
    measured: bool = False
    """Whether a former load of this model with these options was measured."""
    correction: dict[str, int] = {}
    """Bytes by place that were added to the need for that, or taken from it (below zero)."""

    def need(self, context: int = 0) -> dict[str, int]:
        """Return place → bytes, with ``context`` tokens for each slot instead of :attr:`context`."""
        tokens = (context or self.context) * self.slots
        return {place: need.fixed + round(need.per_token * tokens) for place, need in self.places.items()}

    def corrected(self, differences: Mapping[str, int]) -> MemoryEstimate:
        """Return the estimate with what a former engine took beyond it (or less, below zero), by place.

        It never gets lower than the mapped files and what an engine touches only while it works.
        """
        places = {
            place: structs.replace(need, fixed=max(need.fixed + differences.get(place, 0), need.mapped + need.lazy))
            for place, need in {**dict.fromkeys(differences, PlaceNeed()), **self.places}.items()
        }
        correction = {place: need.fixed - self.places.get(place, PlaceNeed()).fixed for place, need in places.items()}
        parts = {**self.parts, "measured difference": sum(differences.values())}
        return structs.replace(self, places=places, parts=parts, measured=True, correction=correction)

    def differences(self, used: Mapping[str, int], context: int = 0) -> dict[str, int]:
        """Return by how much an engine uses more than was estimated without any correction, or less (below zero), by place.

        ``used``: place → bytes. ``context``: as in :meth:`need`.
        """
        need = self.need(context)
        return {place: size - need.get(place, 0) + self.correction.get(place, 0) for place, size in used.items()}
