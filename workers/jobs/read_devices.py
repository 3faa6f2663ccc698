"""The job process that reads the memory of devices: ``python -m workers.jobs.read_devices``.

It reads whenever the supervisor asks, as long as the supervisor lives. Drivers may hang: then a thread of this process
does, the supervisor sees that no answer comes, and kills the process.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import time
from functools import partial
from pathlib import Path
from typing import Final

from protocol.messages.devices import DeviceReading, DevicesRead, ReadDevices
from workers.jobs.device_memory import nvidia
from workers.jobs.device_memory.drm import GraphicsCards
from workers.jobs.job import JobProcess

NVIDIA_RETRY_S: Final = 60.0
"""How long NVIDIA's library is left alone after it showed nothing. A new one only gets into a new process, so this one ends."""


class DeviceReader:
    """Reads all devices of this machine. Each call may hang in a driver."""

    def __init__(self, machine: str) -> None:
        """``machine`` has the ``proc`` and ``sys`` with the devices."""
        self._cards = GraphicsCards(Path(machine))
        self._started = False
        self._nvidia_problem = ""
        self._failed_at = 0.0

    @property
    def is_outdated(self) -> bool:
        """Whether another process might read more."""
        return bool(self._nvidia_problem) and time.monotonic() - self._failed_at > NVIDIA_RETRY_S

    def read(self, order: ReadDevices) -> DevicesRead:
        """Read all devices."""
        devices = self._cards.read(order.integrated, order.processes)
        if order.nvidia and not self._nvidia_problem:
            devices += self._read_nvidia()
        return DevicesRead(order.number, devices, [self._nvidia_problem] if self._nvidia_problem else [])

    def _read_nvidia(self) -> list[DeviceReading]:
        try:
            if not self._started:
                nvidia.start()
                self._started = True
            return nvidia.read()
        except nvidia.NvidiaError as problem:
            self._nvidia_problem, self._failed_at = str(problem), time.monotonic()
            return []


class ReadingJob:
    """Reads as often as it is asked to. Of the orders that come while a driver takes its time, the last one counts."""

    def __init__(self, job: JobProcess, reader: DeviceReader) -> None:
        self._job, self._reader = job, reader
        self._reading = False
        self._next: ReadDevices | None = None
        job.on_message = self._received

    def _received(self, message: object) -> None:
        if isinstance(message, ReadDevices):
            self._next = message
            self._begin()

    def _begin(self) -> None:
        order = self._next
        if order is not None and not self._reading:
            self._next, self._reading = None, True
            self._job.work(partial(self._reader.read, order), self._done)

    def _done(self, answer: DevicesRead) -> None:
        self._reading = False
        self._job.bus.send(answer)
        if self._reader.is_outdated:
            self._job.loop.stop()
        self._begin()


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    ReadingJob(job, DeviceReader(job.settings.machine_dir))
    job.run()


if __name__ == "__main__":
    main()
