"""How busy the machine's processors are. Nothing is read while no client asks."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from supervisor.machine.pci import read_text

SHORTEST_S: Final = 0.25
"""Seconds that a figure is about, at least: the kernel counts in hundredths."""
LONGEST_S: Final = 10.0
"""Seconds that a figure is about, at most: a longer mean is not the present use."""


class _Times(NamedTuple):
    """The time of all processors since the machine was started, in ticks."""

    idle: int
    all: int


def read_times(machine: Path) -> _Times | None:
    """Return the times in ``proc/stat`` of a machine; None if it does not tell."""
    name, *words = read_text(machine / "proc/stat").partition("\n")[0].split() or [""]
    ticks = [int(word) for word in words if word.isdecimal()][:8]  # guests are already counted in `user`
    return _Times(ticks[3] + ticks[4], sum(ticks)) if name == "cpu" and len(ticks) > 4 else None


class ProcessorUse:
    """The use since the last figure. A first call, or one after a long pause, gets its figure after :data:`SHORTEST_S`."""

    def __init__(self, machine: Path) -> None:
        """``machine`` has the ``proc`` that describes it."""
        self._machine = machine
        self._last: _Times | None = None
        self._last_at = 0.0
        self._percent: float | None = None

    def begin(self, now: float) -> float:
        """Return after how many seconds :meth:`percent` has a figure; 0: now, or it never has one."""
        if self._last is None or now - self._last_at > LONGEST_S:
            self._percent, self._last, self._last_at = None, read_times(self._machine), now
        return max(0.0, self._last_at + SHORTEST_S - now) if self._percent is None and self._last is not None else 0.0

    def percent(self, now: float) -> float | None:
        """Return the use from 0 to 100; None if the machine does not tell."""
        if self._last is not None and now - self._last_at >= SHORTEST_S:
            times, last = read_times(self._machine), self._last
            if times is not None and times.all > last.all:
                share = 1 - (times.idle - last.idle) / (times.all - last.all)
                self._percent = min(100.0, max(0.0, 100 * share))  # the kernel's idle time may go back
            self._last, self._last_at = times, now
        return self._percent
