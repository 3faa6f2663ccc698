"""What is known of devices while their job answers, hangs, ends, and reports problems. No process, no clock."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from protocol.messages.devices import DeviceReading, DevicesRead, ReadDevices
from protocol.messages.system_info import Cpu, Gpu, MachineInfo
from protocol.models.memory import HOST, Capacity, EngineDevice
from protocol.models.nodes import HEAD
from supervisor.machine import device_readings
from supervisor.machine.device_readings import INTERVAL_S, REFRESH_TIMEOUT_S, SILENCE_S, DeviceReadings
from supervisor.runtime.jobs import OnEnded

CARDS = [
    Gpu("0000:03:00.0", "Other name", driver="amdgpu"),
    Gpu("0000:c4:00.0", "Graphics", driver="amdgpu", integrated=True),
]
MACHINE = MachineInfo("System", 1, Cpu("Cpu", 1, 1, "x86_64"), amd_gpus=CARDS)
CARD = DeviceReading(
    "amd", "0000:03:00.0", "0000:03:00.0", name="Card", total=24, free=20, used_percent=7.0, processes={5: 4}
)
SHARED = DeviceReading("amd", "0000:c4:00.0", HOST, used_percent=1.0, processes={5: 9})


class Harness:
    """The parts of a supervisor that the readings use."""

    def __init__(self, *drivers: str) -> None:
        self.now, self.closing = 1000.0, False
        self.jobs: list[tuple[str, OnEnded]] = []
        self.orders: list[ReadDevices] = []
        """All orders so far, with those that new jobs got."""
        self.given_up: list[str] = []
        self._timers: list[tuple[float, Callable[[], None]]] = []
        loop: Any = SimpleNamespace(now=lambda: self.now, call_later=self._later, every=self._every)
        jobs: Any = SimpleNamespace(start=self._start, give_up=self._give_up)
        bus: Any = SimpleNamespace(send=self._send)
        self.readings = DeviceReadings(
            loop=loop,
            jobs=jobs,
            bus=bus,
            machine=MACHINE,
            drivers=drivers,
            workers=lambda: [5],
            closing=lambda: self.closing,
        )
        self.readings.start()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append((self.now + seconds, callback))

    def _every(self, seconds: float, callback: Callable[[], None]) -> None:
        def again() -> None:
            callback()
            self._later(seconds, again)

        self._later(seconds, again)

    def _start(self, module: str, ended: OnEnded, order: ReadDevices, node: str) -> str:
        assert (module, node) == (device_readings.MODULE, HEAD)
        self.jobs.append((f"j{len(self.jobs) + 1}", ended))
        self.orders.append(order)
        return self.jobs[-1][0]

    def _send(self, peer: str, order: ReadDevices) -> None:
        assert peer == self.jobs[-1][0]
        self.orders.append(order)

    def _give_up(self, job: str) -> None:
        self.given_up.append(job)
        self.end("SIGKILL")

    def end(self, why: str = "exit 1") -> None:
        job, ended = self.jobs[-1]
        ended(job, why)

    def wait(self, seconds: float) -> None:
        """Let time pass, and call what is due."""
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer[0] <= end]:
            timer = min(due, key=lambda each: each[0])
            self._timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = end

    def answer(self, *devices: DeviceReading, number: int = 0, problems: tuple[str, ...] = (), job: str = "") -> None:
        """Answer the last order, or that with this number."""
        message = DevicesRead(number or self.orders[-1].number, list(devices), list(problems))
        self.readings.handlers()[DevicesRead](job or self.jobs[-1][0], message, b"")


@pytest.fixture
def harness() -> Harness:
    return Harness("amdgpu")


def test_without_drivers_no_process_is_started() -> None:
    harness = Harness()
    harness.wait(100)
    called: list[float] = []
    harness.readings.refresh(lambda: called.append(harness.now))
    harness.wait(0)
    assert (harness.jobs, harness.readings.capacities(), called) == ([], [], [harness.now])


def test_the_job_knows_what_to_look_at(harness: Harness) -> None:
    assert harness.orders == [ReadDevices(1, nvidia=False, integrated=["0000:c4:00.0"], processes=[5])]
    assert Harness("nvidia", "xe").orders[0].nvidia


def test_only_devices_with_memory_of_their_own_are_places(harness: Harness) -> None:
    assert harness.readings.capacities() == []
    harness.wait(0.5)
    unknown = DeviceReading("amd", "0000:04:00.0", "0000:04:00.0", problem="Unknown")
    harness.answer(CARD, SHARED, unknown)
    assert harness.readings.capacities() == [Capacity("0000:03:00.0", 24, 20, name="Card", used_percent=7.0, age=0.5)]
    named = structs.replace(SHARED, name="Graphics")  # as the lists of names call it, if the driver does not say
    assert [reading for reading, _ in harness.readings.devices()] == [CARD, named, unknown]
    assert harness.readings.used_by([4, 5]) == {"0000:03:00.0": 4, HOST: 9}
    assert harness.readings.used_by([6]) == {}
    assert harness.readings.problems() == ["Unknown"]


def test_readings_are_replaced_as_they_come(harness: Harness) -> None:
    harness.answer(CARD, SHARED)
    harness.wait(INTERVAL_S)
    assert [order.number for order in harness.orders] == [1, 2]
    harness.answer(SHARED)
    assert harness.readings.capacities() == []
    harness.answer(CARD, job="j9", number=2)
    harness.answer(CARD, number=1)
    assert harness.readings.capacities() == []  # neither another job's answer nor one that came before counts


def test_a_device_that_cannot_be_read_keeps_its_figures_and_says_so(harness: Harness) -> None:
    parts = [
        DeviceReading("amd", "0000:41:00.0", f"MIG-{number}", f"MIG-{number}", total=9, free=number)
        for number in (1, 2)
    ]
    harness.answer(CARD, *parts)
    harness.wait(INTERVAL_S)
    lost = [
        DeviceReading("amd", address, address, problem="GPU is lost") for address in ("0000:03:00.0", "0000:41:00.0")
    ]
    harness.answer(*lost)
    assert [(each.place, each.free, each.age) for each in harness.readings.capacities()] == [
        ("0000:03:00.0", 20, INTERVAL_S),
        ("MIG-1", 1, INTERVAL_S),
        ("MIG-2", 2, INTERVAL_S),
    ]
    assert harness.readings.problems() == ["GPU is lost"]
    harness.wait(INTERVAL_S)
    harness.answer(CARD)
    assert (harness.readings.problems(), len(harness.readings.capacities())) == ([], 1)


def test_a_device_that_never_shows_its_memory_is_up_to_date(harness: Harness) -> None:
    for percent in (5.0, 6.0):
        card = DeviceReading("intel", "0000:04:00.0", "0000:04:00.0", used_percent=percent, problem="Unknown")
        harness.answer(card)
        assert harness.readings.devices() == [(card, 0.0)]
        harness.wait(INTERVAL_S)


def test_who_needs_the_devices_waits_for_the_first_reading(harness: Harness) -> None:
    got: list[list[EngineDevice]] = []
    harness.readings.for_engines(got.append)
    harness.wait(1)
    assert got == []
    harness.answer(CARD, SHARED, DeviceReading("intel", "0000:04:00.0", "0000:04:00.0", problem="Unknown"))
    devices = [EngineDevice("amd", "0000:03:00.0", free=20), EngineDevice("amd", HOST)]
    assert got == [devices]
    harness.readings.for_engines(got.append)
    assert got == [devices, devices]
    harness.wait(SILENCE_S + 1)
    assert len(got) == 2


def test_who_needs_the_devices_gets_none_if_their_driver_hangs(harness: Harness) -> None:
    got: list[list[EngineDevice]] = []
    harness.readings.for_engines(got.append)
    harness.wait(SILENCE_S - 1)
    assert got == []
    harness.wait(1)
    assert got == [[]]
    Harness().readings.for_engines(got.append)
    assert got == [[], []]  # without drivers there is nothing to wait for


def test_one_order_at_a_time_unless_newer_figures_are_needed(harness: Harness) -> None:
    harness.wait(3 * INTERVAL_S)
    assert len(harness.orders) == 1


def test_newer_figures_are_those_that_were_read_after_the_call(harness: Harness) -> None:
    called: list[str] = []
    harness.readings.refresh(lambda: called.append("first"))
    assert len(harness.orders) == 1  # a job that starts has an order already
    harness.answer(CARD)
    assert called == ["first"]
    harness.wait(INTERVAL_S)  # order 2 is on its way
    harness.readings.refresh(lambda: called.append("second"))
    harness.answer(CARD, number=2)
    assert called == ["first"]
    harness.answer(CARD, number=3)
    assert called == ["first", "second"]
    harness.wait(10 * REFRESH_TIMEOUT_S)
    assert called == ["first", "second"]


def test_a_refresh_ends_when_the_driver_hangs(harness: Harness) -> None:
    harness.answer(CARD)
    called: list[float] = []
    harness.readings.refresh(lambda: called.append(harness.now))
    harness.wait(REFRESH_TIMEOUT_S / 2)
    assert called == []
    harness.wait(REFRESH_TIMEOUT_S)
    assert called == [1000 + REFRESH_TIMEOUT_S]


def test_a_job_that_hangs_is_replaced_later_each_time(harness: Harness) -> None:
    harness.answer(CARD)
    harness.wait(SILENCE_S)
    (card,) = harness.readings.capacities()
    assert card.age == SILENCE_S
    assert harness.readings.problems() == ["Card was last read 10 s ago: its driver does not answer"]
    harness.wait(3 * INTERVAL_S)
    assert (harness.given_up, len(harness.jobs)) == (["j1"], 1)
    harness.wait(60)
    assert len(harness.jobs) == 2
    harness.wait(SILENCE_S + 3 * INTERVAL_S)
    assert (harness.given_up, len(harness.jobs)) == (["j1", "j2"], 2)
    harness.wait(100)
    assert len(harness.jobs) == 2
    harness.wait(20)
    assert len(harness.jobs) == 3
    harness.answer(CARD)
    assert harness.readings.problems() == []


def test_a_job_that_ends_is_started_again(harness: Harness) -> None:
    harness.answer(CARD)
    harness.end()
    called: list[None] = []
    harness.readings.refresh(lambda: called.append(None))
    harness.wait(0)
    assert called == [None]
    harness.wait(1)
    assert len(harness.jobs) == 2
    harness.answer(CARD, job="j1")  # its last words come after its end
    assert harness.readings.capacities()[0].age == 1
    harness.closing = True
    harness.end()
    harness.wait(100)
    assert len(harness.jobs) == 2


def test_problems_of_a_library(harness: Harness) -> None:
    harness.answer(CARD, problems=("No library",))
    assert (harness.readings.problems(), len(harness.readings.capacities())) == (["No library"], 1)
    harness.wait(INTERVAL_S)
    harness.answer(CARD)
    assert harness.readings.problems() == []
