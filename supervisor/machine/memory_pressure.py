"""Memory that is nearly used up: on the machine, and in the control groups above this process. Pure, but for the files it reads.

The files are read at short intervals. The kernel can also announce pressure, but to few: a container usually cannot write
the files where it is asked to, and version 1 of the control groups has no such file. A reading takes well under a millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from protocol.runtime.control_groups import Cgroup
from supervisor.machine.cgroups import read_memory
from supervisor.machine.host_memory import read_host_memory
from supervisor.machine.pci import read_text

_STALLED: Final = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)
LEAST_HEADROOM_SHARE: Final = 32
"""A place is short of memory if less than this fraction of it, a thirty-second, can be had before the kernel kills."""
LEAST_HEADROOM: Final = (8 << 20, 512 << 20)
"""But never less than the first, and no more than the second number of bytes."""
LEAST_FREE_SHARE: Final = 16
"""It is also short if less than this fraction is free while processes stall for memory: the kernel drops what engines use."""
STALLED_SHARE: Final = 0.1
"""The part of the time that counts as stalling."""
WINDOW_S: Final = 1.0
"""Over how long stalls are measured."""
RELIEF: Final = 2
"""Once it is short, it is so until there is this many times as much."""


class PressureReading(NamedTuple):
    """The memory of the machine or of a control group at one moment, in bytes."""

    group: str
    """The name of the control group; empty for the machine."""
    limit: int
    free: int
    """What can be had without taking what processes use, mapped files included."""
    headroom: int
    """What can be had before the kernel kills a process."""
    stalled: int
    """Microseconds in which some process waited for memory, since the start of the machine or group; 0 if unknown."""


class MemoryPressure(NamedTuple):
    """A place that is short of memory."""

    reading: PressureReading
    stalled: float
    """The part of the last second in which some process waited for memory."""


def read_pressure(machine: Path, groups: Iterable[Cgroup]) -> list[PressureReading]:
    """Return the readings of the machine and of those control groups that have a limit. ``machine`` has its ``proc``."""
    total, free, headroom = read_host_memory(machine)
    stalled = _stalled(f"{machine}/proc/pressure/memory")
    readings = [PressureReading("", total, free, headroom, stalled)] if total else []
    for group in groups:
        memory = read_memory(group)
        if memory is not None and memory.limit < total:
            # Version 1 has none; stalls at its limits are in those of the machine.
            stalls = _stalled(f"{group.path}/memory.pressure") if group.version == 2 else stalled
            left = max(0, memory.limit - memory.kept)
            readings.append(PressureReading(group.name, memory.limit, memory.free, left, stalls))
    return readings


def _stalled(file: str) -> int:
    found = _STALLED.search(read_text(file))
    return int(found[1]) if found else 0


class PressureJudge:
    """Judges one reading after the other."""

    def __init__(self, reserve: int = -1) -> None:
        """Nothing is known of stalls before the second reading. ``reserve``: as the setting ``memory_reserve``."""
        self._reserve = reserve
        self._short: set[str] = set()
        """The groups that were short of memory at the last reading."""
        self._windows: dict[str, tuple[float, int, float]] = {}
        """Group → when the present window began, the stalls until then, and the stalled part of the window before."""

    def judge(self, readings: Sequence[PressureReading], now: float) -> MemoryPressure | None:
        """Return the place that is shortest of memory, in proportion to its size; None if none is short."""
        found = []
        for reading in readings:
            pressure = MemoryPressure(reading, self._stalled_share(reading, now))
            if is_short(pressure, self._reserve, before=reading.group in self._short):
                found.append(pressure)
        self._short = {each.reading.group for each in found}
        return min(found, key=lambda each: each.reading.headroom / each.reading.limit, default=None)

    def _stalled_share(self, reading: PressureReading, now: float) -> float:
        began, stalled, share = self._windows.get(reading.group, (now, reading.stalled, 0.0))
        if now - began >= WINDOW_S:
            share = max(0, reading.stalled - stalled) / 1e6 / (now - began)
            began, stalled = now, reading.stalled
        self._windows[reading.group] = began, stalled, share
        return share


def is_short(pressure: MemoryPressure, reserve: int, *, before: bool) -> bool:
    """Return whether a place is short of memory. ``before``: whether it was at the last reading."""
    limit, relief = pressure.reading.limit, RELIEF if before else 1
    if pressure.reading.headroom < least_headroom(limit, reserve) * relief:
        return True
    stalls = pressure.stalled >= STALLED_SHARE / relief
    return stalls and pressure.reading.free < limit // LEAST_FREE_SHARE * relief


def least_headroom(limit: int, reserve: int = -1) -> int:
    """Return the headroom, in bytes, below which a place is short of memory.

    Models are loaded until only the reserve is left, so this is less: an automatic reserve is one twentieth.
    """
    least, most = LEAST_HEADROOM
    usual = min(most, max(least, limit // LEAST_HEADROOM_SHARE))
    return usual if reserve < 0 else min(usual, reserve // RELIEF)


def is_near(readings: Iterable[PressureReading]) -> bool:
    """Return whether a place may soon be short of memory, so that it is looked at more often."""
    return any(each.headroom < each.limit // 4 for each in readings)
