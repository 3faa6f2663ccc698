"""What workers' engines hold of this machine's memory: on devices as drivers show it, and of the host as its kernel does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.models.memory import HOST
from protocol.models.nodes import HEAD
from supervisor.machine.device_readings import DeviceReadings
from supervisor.processes.placement import Placement


class HeldMemory:
    """Bytes by place: :data:`~protocol.models.memory.HOST`, or a device."""

    def __init__(
        self, devices: DeviceReadings, processes: Placement, elsewhere: Callable[[str, str], dict[str, int]]
    ) -> None:
        """``elsewhere`` returns what the engine of a worker held on the devices of its node, which is not the head."""
        self._devices, self._processes, self._elsewhere = devices, processes, elsewhere

    def on_devices(self, worker: str) -> dict[str, int]:
        """Return what a worker's engine held when the devices were read last. Some devices use the host's memory."""
        if (node := self._processes.node_of(worker)) != HEAD:
            return self._elsewhere(worker, node)
        return self._devices.used_by(self._processes.started_by(worker)) if self._devices.devices() else {}

    def all(self, worker: str) -> dict[str, int]:
        """Return all that a worker's engine holds. What a GPU uses of the host's memory is not in that of its process."""
        return all_held(self._processes.held_bytes(worker), self.on_devices(worker))


def all_held(on_host: int, on_devices: Mapping[str, int]) -> dict[str, int]:
    """Return what an engine holds by place. ``on_host``: of its processes, 0 if that is not known."""
    return {**on_devices, **({HOST: on_host + on_devices.get(HOST, 0)} if on_host else {})}
