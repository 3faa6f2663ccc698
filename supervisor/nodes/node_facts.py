"""What a node is, read on that node: its processors, devices and memory, and the backends that can run there."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from protocol.config.settings import Settings
from protocol.messages.nodes import NodeHardware
from protocol.models.nodes import NodeFacts
from supervisor.backends.inventory import DEFAULT_BACKEND, INSTALLED, UPDATE_REQUIRED, BackendInventory
from supervisor.machine import hardware, pci
from supervisor.machine.host_memory import host_capacity


def read_node_facts(
    settings: Settings,
    name: str,
    address: str,
    labels: Mapping[str, str],
    resources: Mapping[str, float],
) -> NodeFacts:
    """Return the facts of the machine that this process runs on. ``settings`` are those of its processes."""
    devices = hardware.read_machine(settings.machine_dir).devices
    return NodeFacts(
        name=name,
        address=address,
        cpus=len(os.sched_getaffinity(0)),
        devices=[str(device) for device in devices],
        labels=dict(labels),
        resources=dict(resources),
        backends=usable_backends(settings, devices),
        memory=host_capacity(Path(settings.machine_dir)).total,
    )


def read_node_hardware(settings: Settings) -> NodeHardware:
    """Return the machine that this process runs on."""
    drivers = pci.graphics_drivers(Path(settings.machine_dir))
    return NodeHardware(hardware.read_machine(settings.machine_dir), sorted(drivers))


def usable_backends(settings: Settings, devices: Collection[str]) -> list[str]:
    """Return the backends that are installed on this machine and can run on it, each ``RECIPE:BACKEND``."""
    return sorted(
        f"{recipe}:{backend}"
        for recipe, status in BackendInventory(settings).recipes(devices).items()
        for backend, each in status.backends.items()
        if backend != DEFAULT_BACKEND and each.state in (INSTALLED, UPDATE_REQUIRED)
    )
