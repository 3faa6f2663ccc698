"""The memory that this machine has now: the host's, read when it is asked for, and the devices', as they were last read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from protocol.models.memory import Capacity
from supervisor.machine.host_memory import read_host_memory


class MachineMemory:
    """What the machine has, by place."""

    def __init__(self, machine_dir: str, devices: Callable[[], list[Capacity]]) -> None:
        """``machine_dir`` has the ``proc`` of the machine; ``devices`` returns the last readings, with their ages."""
        self._machine, self._devices = Path(machine_dir), devices

    def read(self) -> list[Capacity]:
        """Return the host's memory, then that of each device with memory of its own. Takes less than a millisecond, and never waits."""
        return [read_host_memory(self._machine), *self._devices()]
