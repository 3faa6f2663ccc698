"""The call about the present use of the machine: processors, memory and graphics cards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from protocol.messages.devices import DeviceReading
from protocol.messages.system_info import GetSystemStats, MachineUsage
from protocol.models.memory import HOST, Capacity
from protocol.runtime.loop import Loop
from supervisor.handlers.reported_nodes import ReportedNodes
from supervisor.machine.host_memory import read_host_memory
from supervisor.machine.processor_use import ProcessorUse
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler

OLD_S: Final = 10.0
"""A reading of a device that is older says nothing about now: its driver hangs."""


def device_use(readings: Sequence[tuple[DeviceReading, float]]) -> tuple[float | None, int | None]:
    """Return the use of the busiest device in percent, and the bytes in use on those with memory of their own.

    None: no device tells. ``readings``: each with its age in seconds. Pure.
    """
    recent = [reading for reading, age in readings if age <= OLD_S and not reading.problem]
    busy = [reading.used_percent for reading in recent if reading.used_percent is not None]
    own = [reading.total - reading.free for reading in recent if reading.place != HOST and reading.total]
    return max(busy, default=None), sum(own) if own else None


class SystemStatsCalls:
    """Answers this call."""

    def __init__(
        self,
        loop: Loop,
        machine: Path,
        devices: Callable[[], Sequence[tuple[DeviceReading, float]]],
        memory: Callable[[], list[Capacity]],
        nodes: ReportedNodes,
        calls: GatewayCalls,
    ) -> None:
        """``devices`` returns the last readings with their ages, ``memory`` what each place has."""
        self._loop, self._machine, self._calls = loop, machine, calls
        self._devices, self._memory, self._nodes = devices, memory, nodes
        self._processor = ProcessorUse(machine)

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of this message."""
        return {GetSystemStats: self._get}

    def _get(self, peer: str, call: GetSystemStats, _payload: bytes) -> None:
        wait_s = self._processor.begin(self._loop.now())
        if wait_s:
            self._loop.call_later(wait_s, partial(self._answer, peer, call))
        else:
            self._answer(peer, call)

    def _answer(self, peer: str, call: GetSystemStats) -> None:
        host = read_host_memory(self._machine)
        gpu_percent, device_memory = device_use(self._devices())
        report = MachineUsage(
            cpu_percent=self._processor.percent(self._loop.now()),
            memory_used=host.total - host.free,
            gpu_percent=gpu_percent,
            device_memory_used=device_memory,
            memory=self._memory(),
            nodes=self._nodes.several(),
        )
        self._calls.reply(peer, call.number, report)
