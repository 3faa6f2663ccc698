"""Which models this machine can run, and why not the others. Pure, except for the default capacity, which is this machine's."""

from __future__ import annotations

from typing import Final, NamedTuple

import psutil

from protocol.failures import printable
from protocol.messages.system_info import MachineInfo as Hardware
from protocol.models.devices import Device
from supervisor.backends.inventory import missing_requirement
from supervisor.models.catalogues.catalogue import CatalogueEntry
from workers.backends.registry import DESCRIPTORS

_USABLE_MEMORY_SHARE: Final = 0.8
"""Share of the memory; the rest is for other programs."""


class MachineCapacity(NamedTuple):
    """What a machine offers models: kinds of devices, and bytes of memory (0: unknown)."""

    devices: frozenset[str]
    memory: int


def default_capacity() -> MachineCapacity:
    """Return what every machine has: a processor, and its memory."""
    return MachineCapacity(frozenset({Device.CPU}), psutil.virtual_memory().total)


def capacity_of(hardware: Hardware) -> MachineCapacity:
    """Return the capacity of the machine that the kernel shows.

    Graphics memory counts as well, because models are split over both.
    """
    cards = sum(gpu.memory for gpu in (*hardware.amd_gpus, *hardware.nvidia_gpus) if gpu.available)
    return MachineCapacity(frozenset(hardware.devices), hardware.memory + cards if hardware.memory else 0)


def incompatibility(entry: CatalogueEntry, machine: MachineCapacity) -> str:
    """Return why a machine cannot run a model, as a sentence; empty if it can."""
    descriptor = DESCRIPTORS.get(entry.recipe)
    if descriptor is None:
        return f"Recipe {printable(entry.recipe)} is not known here"
    own = [backend for backend in descriptor.backends if not backend.shares]
    if all(missing_requirement(backend, machine.devices) for backend in own):
        return missing_requirement(own[0], machine.devices)
    if machine.memory and entry.size * 1e9 > _USABLE_MEMORY_SHARE * machine.memory:
        usable = _USABLE_MEMORY_SHARE * machine.memory / 1e9
        return f"Needs more than {entry.size:.3g} GB of memory; models may use {usable:.3g} GB of this machine"
    return ""
