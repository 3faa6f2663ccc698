"""Reads the memory of the head for the scheduler: what this machine has, and what each engine here holds of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from protocol.models.memory import Capacity
from protocol.models.nodes import HEAD
from supervisor.machine.device_readings import DeviceReadings
from supervisor.machine.host_memory import host_capacity
from supervisor.scheduler.scheduler import Scheduler


class MachineMemory:
    """What the machine has, by place."""

    def __init__(self, machine_dir: str, devices: Callable[[], list[Capacity]]) -> None:
        """``machine_dir`` has the ``proc`` of the machine; ``devices`` returns the last readings, with their ages."""
        self._machine, self._devices = Path(machine_dir), devices

    def read(self) -> list[Capacity]:
        """Return the host's memory, then that of each device with memory of its own. Takes less than a millisecond, and never waits."""
        return [host_capacity(self._machine), *self._devices()]


class MemoryReader:
    """Reads only while something depends on it: a model waits to be loaded, or an eviction is to be logged.

    The host is read at once. If there are devices, a job reads them first, which takes some milliseconds: meanwhile, the
    scheduler starts no engine.
    """

    def __init__(
        self,
        machine: MachineMemory,
        devices: DeviceReadings,
        held_by: Callable[[str], Mapping[str, int]],
        scheduler: Scheduler,
        read_elsewhere: Callable[[str], None],
    ) -> None:
        """``held_by`` returns what the engine of a worker holds, by place; places that are not known are missing.

        ``read_elsewhere`` is called, before each decision, with each other node whose memory the scheduler wants to know.
        """
        self._machine, self._devices, self._held_by, self._scheduler = machine, devices, held_by, scheduler
        self._read_elsewhere = read_elsewhere
        self.on_read: Callable[[], None] = lambda: None
        """Called when the scheduler has got figures that it waited for."""
        self._changes_before: int | None = None
        """How often the memory had changed when the present reading of devices began; None if there is none."""

    def read_if_wanted(self, now: float) -> None:
        """Tell the scheduler about the memory if it wants to know, now or when the devices were read."""
        view = self._scheduler.view
        wanted = view.wants_memory(now)
        for node in wanted:
            if node != HEAD:
                self._read_elsewhere(node)
        if self._changes_before is not None or HEAD not in wanted:
            return
        if self._devices.capacities():
            self._changes_before = view.memory_changes(HEAD)
            self._devices.refresh(lambda: self._devices_read(now))
        else:
            self._read(now)

    def _devices_read(self, began: float) -> None:
        is_current = self._changes_before == self._scheduler.view.memory_changes(HEAD)
        self._changes_before = None
        if is_current:
            self._read(began)
        self.on_read()  # if something has changed meanwhile, this reads again

    def _read(self, now: float) -> None:
        """Read what is free and what engines hold at one moment, because the scheduler adds them."""
        engines = [each.worker for each in self._scheduler.view.workers() if each.model and each.node == HEAD]
        held = {worker: self._held_by(worker) for worker in engines}
        self._scheduler.memory_read(HEAD, self._machine.read(), held, now)
