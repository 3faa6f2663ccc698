"""Which models this machine can run, and why not the others. Pure, but for one look at the machine's memory."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from protocol.checkpoints import printable
from protocol.devices import Device
from protocol.machine import Machine as Hardware
from supervisor.backends import wanting
from supervisor.catalogue import Entry
from workers.backends import DESCRIPTORS

_SHARE: Final = 0.8
"""Of the memory: what is beside the model needs some, too."""


class Machine(NamedTuple):
    """What a model needs of a machine: kinds of devices, and bytes of memory (0: unknown)."""

    devices: frozenset[str]
    memory: int


def plain() -> Machine:
    """Return what every machine has: a processor, and its memory."""
    return Machine(frozenset({Device.CPU}), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def machine_of(hardware: Hardware) -> Machine:
    """Return the same of the machine as its kernel tells; memory of graphics cards counts, models are split over both."""
    cards = sum(gpu.memory for gpu in (*hardware.amd_gpus, *hardware.nvidia_gpus) if gpu.available)
    return Machine(frozenset(hardware.devices), hardware.memory + cards if hardware.memory else 0)


def hindrance(entry: Entry, machine: Machine) -> str:
    """Return why a model cannot be run on a machine, as a sentence; empty if it can."""
    descriptor = DESCRIPTORS.get(entry.recipe)
    if descriptor is None:
        return f"Recipe {printable(entry.recipe)} is not known here"
    own = [backend for backend in descriptor.backends if not backend.shares]
    if all(wanting(backend, machine.devices) for backend in own):
        return wanting(own[0], machine.devices)
    if machine.memory and entry.size * 1e9 > _SHARE * machine.memory:
        return f"Needs more than {entry.size:.3g} GB of memory, of which this machine has {machine.memory / 1e9:.3g}"
    return ""
