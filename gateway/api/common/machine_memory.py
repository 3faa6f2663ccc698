"""What is left of the machine's memory and disks, as ``health`` and ``system-info`` show it."""

from __future__ import annotations

import msgspec

from protocol.messages.health import DiskSpace
from protocol.models.memory import Capacity


class MemoryEntry(msgspec.Struct):
    """The memory of the host, or of a device with memory of its own."""

    place: str
    """`host`, or the device: its address on the PCI bus, or its UUID if it is a part of a GPU."""
    name: str
    """The device's product name."""
    total_bytes: int
    """What it has, or what a control group above the server allows."""
    free_bytes: int
    """What new work may use. Page cache that no process has mapped counts."""
    limited_by: str
    """For administrators: the control group that leaves the least; empty if it is the machine itself."""
    utilization_percent: float | None
    """How busy the device was in the last moment; null if unknown."""
    age_seconds: float
    """When it was read. A device whose driver hangs gets older."""


def memory_entries(memory: list[Capacity], *, detail: bool) -> list[MemoryEntry]:
    """Return each place as answers show it. ``detail``: with the names of control groups."""
    return [
        MemoryEntry(
            place=each.place,
            name=each.name,
            total_bytes=each.total,
            free_bytes=each.free,
            limited_by=each.limit if detail else "",
            utilization_percent=each.used_percent,
            age_seconds=round(each.age, 3),
        )
        for each in memory
    ]


class DiskEntry(msgspec.Struct):
    """The disk of a directory of the server."""

    directory: str
    """What is there: `cache`, `models` (the hub's cache) or `state`."""
    free_bytes: int
    size_bytes: int


def disk_entries(disks: list[DiskSpace]) -> list[DiskEntry]:
    """Return each disk as answers show it."""
    return [DiskEntry(each.directory, each.free, each.size) for each in disks]
