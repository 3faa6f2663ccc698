"""What drivers show of an engine corrects the next estimate: from the driver's library to the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.messages.devices import DevicesRead, ReadDevices
from protocol.messages.system_info import Cpu, MachineInfo
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD
from supervisor.machine.device_measurements import DeviceMeasurements
from supervisor.machine.device_readings import DeviceReadings
from supervisor.models.measured_memory import FILE, MeasuredMemory
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulation import Simulation
from tests.support.fakes.nvml import MIB, FakeNvml, h100, install
from workers.jobs.read_devices import DeviceReader

CARD = "0000:00:06.0"
ENGINE = 4912
"""The process that uses 1846 MiB of the card."""
ESTIMATE = MemoryEstimate({HOST: PlaceNeed(100 * MIB), CARD: PlaceNeed(1500 * MIB, 2.0 * MIB)}, context=50)
NEED = 1600 * MIB


@pytest.fixture
def measured(tmp_path: Path) -> MeasuredMemory:
    return MeasuredMemory(tmp_path / FILE)


def loaded(estimate: MemoryEstimate) -> Simulation:
    sim = Simulation()
    sim.estimates["a"] = estimate
    sim.load("a")
    sim.run_until_idle()
    assert sim.serving("a")
    return sim


class Measuring:
    """One engine, whose memory on devices a test sets."""

    def __init__(self, measured: MeasuredMemory, estimate: MemoryEstimate = ESTIMATE) -> None:
        self.sim, self.measured, self.held = loaded(estimate), measured, dict[str, int]()
        self._now = 0.0
        self.measurements = DeviceMeasurements(self.sim.scheduler.view, measured, self._held)
        self.read({})  # the engine is ready: every later reading shows all that it holds

    def _held(self, worker: str) -> Mapping[str, int]:
        assert worker == self.sim.serving("a")
        return self.held

    def read(self, held: dict[str, int]) -> None:
        self.held = held
        self._now += 2.0
        self.measurements.devices_read(self._now - 1.0, self._now)

    def corrected(self, estimate: MemoryEstimate = ESTIMATE) -> MemoryEstimate:
        return self.measured.corrected(spec("a"), HEAD, estimate)


def test_what_nvidias_library_shows_of_an_engine_corrects_the_next_estimate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured: MeasuredMemory
) -> None:
    install(monkeypatch, FakeNvml([h100()]))
    reader = DeviceReader(str(tmp_path))
    now = [100.0]
    orders: list[ReadDevices] = []
    loop: Any = SimpleNamespace(now=lambda: now[0], every=lambda *_: None, call_later=lambda *_: None)
    readings = DeviceReadings(
        loop=loop,
        jobs=SimpleNamespace(start=lambda _module, _ended, order, _node: orders.append(order) or "j1"),  # type: ignore[arg-type, func-returns-value]
        bus=SimpleNamespace(send=lambda _job, order: orders.append(order)),  # type: ignore[arg-type]
        machine=MachineInfo("System", 1, Cpu("Cpu", 1, 1, "x86_64")),
        drivers=["nvidia"],
        workers=lambda: [5],
        closing=lambda: False,
    )
    sim = loaded(ESTIMATE)
    measurements = DeviceMeasurements(sim.scheduler.view, measured, lambda _worker: readings.used_by([ENGINE]))
    readings.on_read = lambda asked_at: measurements.devices_read(asked_at, now[0])
    readings.start()
    handle = readings.handlers()[DevicesRead]
    for _ in range(2):
        handle("j1", reader.read(orders[-1]), b"")
        now[0] += 2.0
        readings.refresh(lambda: None)
    corrected = measured.corrected(spec("a"), HEAD, ESTIMATE)
    assert corrected.measured
    assert corrected.need()[CARD] == 1846 * MIB
    assert corrected.need()[HOST] == ESTIMATE.need()[HOST]


def test_a_correction_is_not_made_twice(measured: MeasuredMemory) -> None:
    Measuring(measured).read({CARD: NEED + 50 * MIB})
    again = Measuring(measured, measured.corrected(spec("a"), HEAD, ESTIMATE))
    again.read({CARD: NEED + 50 * MIB})
    assert again.corrected().need()[CARD] == NEED + 50 * MIB
    third = Measuring(measured, measured.corrected(spec("a"), HEAD, ESTIMATE))
    third.read({CARD: NEED - 20 * MIB})
    assert third.corrected().need()[CARD] == NEED - 20 * MIB


def test_a_reading_that_began_before_the_engine_was_ready_does_not_count(measured: MeasuredMemory) -> None:
    sim = loaded(ESTIMATE)
    measurements = DeviceMeasurements(sim.scheduler.view, measured, lambda _worker: {CARD: 10 * MIB})
    measurements.devices_read(1.0, 2.0)
    measurements.devices_read(1.5, 3.0)
    assert not measured.corrected(spec("a"), HEAD, ESTIMATE).measured
    measurements.devices_read(2.5, 4.0)
    assert measured.corrected(spec("a"), HEAD, ESTIMATE).measured


def test_the_largest_reading_of_an_engine_counts(measured: MeasuredMemory) -> None:
    measuring = Measuring(measured)
    for held in (NEED - 100 * MIB, NEED + 300 * MIB, NEED):
        measuring.read({CARD: held})
    assert measuring.corrected().need()[CARD] == NEED + 300 * MIB


def test_a_device_that_was_not_foreseen_is_a_part_of_the_next_estimate(measured: MeasuredMemory) -> None:
    measuring = Measuring(measured)
    measuring.read({"MIG-1": 7 * MIB})
    assert measuring.corrected().need() == {**ESTIMATE.need(), "MIG-1": 7 * MIB}


@pytest.mark.parametrize("held", [{}, {HOST: 900 * MIB}], ids=["the driver does not show it", "memory of the host"])
def test_what_drivers_do_not_show_corrects_nothing(measured: MeasuredMemory, held: dict[str, int]) -> None:
    measuring = Measuring(measured)
    measuring.read(held)
    assert not measuring.corrected().measured


def test_an_engine_of_an_earlier_supervisor_corrects_nothing(measured: MeasuredMemory) -> None:
    measuring = Measuring(measured)
    worker = measuring.sim.state.workers[measuring.sim.serving("a")]
    worker.estimate = MemoryEstimate()  # its check is not part of a snapshot
    measuring.read({CARD: NEED})
    assert not measuring.corrected().measured


def test_another_engine_of_the_same_worker_is_measured_anew(measured: MeasuredMemory) -> None:
    measuring = Measuring(measured)
    measuring.read({CARD: NEED + 300 * MIB})
    worker = measuring.sim.serving("a")
    measuring.sim.engine_dies(worker)
    measuring.sim.run_until_idle()
    assert measuring.sim.serving("a") == worker
    measuring.read({CARD: NEED})
    assert measuring.corrected().need()[CARD] == NEED + 300 * MIB, "it may not have had all of its memory yet"
    measuring.read({CARD: NEED + 100 * MIB})
    assert measuring.corrected().need()[CARD] == NEED + 100 * MIB
