"""The devices as their drivers last showed them. A job process reads them, because drivers may hang; nothing here waits for it.

The supervisor asks the job every other second, and when a decision needs newer figures. A reading has an age. A job that
does not answer is killed, and another one is started, later each time. Meanwhile the last readings get older, and health's
``problems`` says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from msgspec import structs

from protocol.messages.devices import DeviceReading, DevicesRead, ReadDevices
from protocol.messages.system_info import MachineInfo
from protocol.models.memory import HOST, Capacity, EngineDevice
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs

MODULE: Final = "workers.jobs.read_devices"
INTERVAL_S: Final = 2.0
SILENCE_S: Final = 10.0
"""How long a job may take to read all devices."""
FIRST_PAUSE_S: Final = 1.0
PAUSE_AFTER_HANG_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
"""A process that hangs in a driver may be impossible to kill, so few of them are started."""
REFRESH_TIMEOUT_S: Final = 1.0
OLD_S: Final = 3 * INTERVAL_S
"""Age of a reading that is worth a word."""

log = logs.get_logger()


class _Known(NamedTuple):
    reading: DeviceReading
    at: float


class DeviceReadings:
    """The last reading of each device."""

    def __init__(
        self,
        loop: Loop,
        jobs: Jobs,
        bus: SupervisorBus,
        machine: MachineInfo,
        drivers: Collection[str],
        workers: Callable[[], list[int]],
        closing: Callable[[], bool],
        node: str = HEAD,
        elsewhere: Handler | None = None,
    ) -> None:
        """``drivers``: those of graphics cards. ``workers`` returns the pids of workers, ``closing`` whether the server ends.

        ``node``: where the devices, the workers and the job are. ``elsewhere`` takes what jobs on other nodes have read.
        """
        self._elsewhere = elsewhere
        self._loop, self._jobs, self._bus, self._node = loop, jobs, bus, node
        self._workers, self._closing = workers, closing
        self._names = {gpu.address: gpu.name for gpu in (*machine.amd_gpus, *machine.nvidia_gpus)}
        self._integrated = [gpu.address for gpu in machine.amd_gpus if gpu.integrated]
        self._drivers = drivers
        self._answered = False
        """Whether the job has answered an order."""
        self._known: dict[str, _Known] = {}
        self._problems: list[str] = []
        self._numbers = itertools.count(1)
        self._asked: dict[int, float] = {}
        """Orders without an answer, and when they were sent."""
        self._job = ""
        self._pause_s = FIRST_PAUSE_S
        self._has_read = False
        self.on_read: Callable[[float], None] = lambda _asked_at: None
        """Called after each reading, with the time when it was asked for."""
        self._first: list[Callable[[], None]] = []
        """What to call once the devices were read for the first time."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        """(the least order whose answer is new enough, what to call then)."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {DevicesRead: self._read_here}

    def start(self) -> None:
        """Read from now on, if there is any driver to ask."""
        if self._drivers:
            self.begin()
            self._loop.every(INTERVAL_S, self.ask)

    def begin(self) -> None:
        """Start the job. :meth:`ask` is to be called every :data:`INTERVAL_S` from now on."""
        self._start_job()

    def capacities(self) -> list[Capacity]:
        """Return the memory of each device that has its own."""
        now = self._loop.now()
        return [
            Capacity(
                place=reading.place,
                total=reading.total,
                free=reading.free,
                name=reading.name,
                used_percent=reading.used_percent,
                age=max(0.0, now - at),
            )
            for reading, at in self._known.values()
            if reading.place != HOST and reading.total
        ]

    def devices(self) -> list[tuple[DeviceReading, float]]:
        """Return the last reading of every device, those that use the host's memory too, each with its age in seconds."""
        now = self._loop.now()
        return [(reading, max(0.0, now - at)) for reading, at in self._known.values()]

    def for_engines(self, use: Callable[[list[EngineDevice]], None]) -> None:
        """Call ``use`` with the devices that engines may compute on: at once, or when they were read for the first time.

        If that takes longer than :data:`SILENCE_S`, none are known.
        """

        def known() -> None:
            use(
                [
                    EngineDevice(reading.vendor, reading.place, reading.uuid, reading.free)
                    for reading, _ in self._known.values()
                    if reading.total or reading.place == HOST
                ]
            )

        def too_late() -> None:
            if known in self._first:
                self._first.remove(known)
                known()

        if self._has_read or not self._drivers:
            known()
        else:
            self._first.append(known)
            self._loop.call_later(SILENCE_S, too_late)

    def used_by(self, pids: Collection[int]) -> dict[str, int]:
        """Return place → memory that processes used on devices when they were last read."""
        found: dict[str, int] = {}
        for reading, _ in self._known.values():
            used = sum(size for pid, size in reading.processes.items() if pid in pids)
            if used:
                found[reading.place] = found.get(reading.place, 0) + used
        return found

    def problems(self) -> list[str]:
        """Return what is not known of devices, as sentences."""
        old = [
            f"{reading.name or reading.address} was last read {age:.0f} s ago: its driver does not answer"
            for reading, age in self.devices()
            if age > OLD_S and not reading.problem
        ]
        broken = [reading.problem for reading, _ in self._known.values() if reading.problem]
        return list(dict.fromkeys([*self._problems, *broken, *old]))

    def refresh(self, done: Callable[[], None]) -> None:
        """Read now, and call ``done`` when all figures are newer than this call, or after :data:`REFRESH_TIMEOUT_S`."""
        if not self._job:
            self._loop.call_later(0.0, done)
            return
        # A job that is about to start has its first order already.
        entry = (self._send() if self._answered else max(self._asked), done)
        self._waiting.append(entry)
        self._loop.call_later(REFRESH_TIMEOUT_S, lambda: self._finish(entry))

    def _finish(self, entry: tuple[int, Callable[[], None]]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            entry[1]()

    def _start_job(self) -> None:
        if not self._closing():
            self._asked.clear()
            self._answered = False
            self._job = self._jobs.start(MODULE, self._ended, self._order(), self._node)

    def _order(self) -> ReadDevices:
        number = next(self._numbers)
        self._asked[number] = self._loop.now()
        return ReadDevices(number, "nvidia" in self._drivers, self._integrated, self._workers())

    def _send(self) -> int:
        order = self._order()
        self._bus.send(self._job, order)
        return order.number

    def ask(self) -> None:
        """Ask for the next reading; if the last ones were not answered for too long, end the job."""
        if not self._job:
            return
        oldest = min(self._asked.values(), default=self._loop.now())
        if self._loop.now() - oldest <= SILENCE_S:
            if not self._asked:
                self._send()
            return
        log.warning("devices cannot be read", reason=f"no answer for {SILENCE_S:g} s", job=self._job)
        self._pause_s = max(PAUSE_AFTER_HANG_S, self._pause_s)
        self._jobs.give_up(self._job)

    def _read_here(self, peer: str, message: DevicesRead, payload: bytes) -> None:
        if peer == self._job:
            self.read(peer, message, payload)
        elif self._elsewhere is not None:
            self._elsewhere(peer, message, payload)

    def read(self, peer: str, message: DevicesRead, _payload: bytes) -> None:
        """Take what a job has read, if it is the present one."""
        if peer != self._job or message.number not in self._asked:
            return
        at, self._answered = self._asked[message.number], True
        self._asked = {number: sent for number, sent in self._asked.items() if number > message.number}
        for problem in message.problems:
            if problem not in self._problems:
                log.warning("devices cannot be read", reason=problem)
        self._problems = message.problems
        self._known = {each.reading.key: each for reading in message.devices for each in self._kept(reading, at)}
        if not message.problems:
            self._pause_s = FIRST_PAUSE_S
        self._has_read = True
        first, self._first = self._first, []
        for each in first:
            each()
        for entry in [each for each in self._waiting if each[0] <= message.number]:
            self._finish(entry)
        self.on_read(at)

    def _kept(self, reading: DeviceReading, at: float) -> list[_Known]:
        """Return a new reading; of a device that cannot be read now, the former figures with the problem."""
        reading = structs.replace(reading, name=reading.name or self._names.get(reading.address, ""))
        former = [each for each in self._known.values() if each.reading.address == reading.address]
        if not reading.problem or not any(each.reading.total for each in former):
            return [_Known(reading, at)]
        return [each._replace(reading=structs.replace(each.reading, problem=reading.problem)) for each in former]

    def _ended(self, job: str, why: str) -> None:
        if job != self._job:
            return
        self._job = ""
        if not self._closing():
            log.info("devices are read by another process", job=job, reason=why, pause_s=self._pause_s)
            self._loop.call_later(self._pause_s, self._start_job)
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
