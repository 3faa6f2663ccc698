"""What workers' engines hold of this machine's memory: on devices as drivers show it, and of the host as its kernel does."""

from __future__ import annotations

from protocol.models.memory import HOST
from supervisor.machine.device_readings import DeviceReadings
from supervisor.processes.placement import ProcessFigures


class HeldMemory:
    """Bytes by place: :data:`~protocol.models.memory.HOST`, or a device."""

    def __init__(self, devices: DeviceReadings, processes: ProcessFigures) -> None:
        self._devices, self._processes = devices, processes

    def on_devices(self, worker: str) -> dict[str, int]:
        """Return what a worker's engine held when the devices were read last. Some devices use the host's memory."""
        return self._devices.used_by(self._processes.started_by(worker)) if self._devices.devices() else {}

    def all(self, worker: str) -> dict[str, int]:
        """Return all that a worker's engine holds. What a GPU uses of the host's memory is not in that of its process."""
        held, on_host = self.on_devices(worker), self._processes.held_bytes(worker)
        return {**held, HOST: on_host + held.get(HOST, 0)} if on_host else held
