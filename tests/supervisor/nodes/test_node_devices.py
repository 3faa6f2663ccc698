"""The devices of other nodes: a job on each node that has graphics cards, and what its answers mean."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.messages.devices import DeviceReading, DevicesRead, ReadDevices
from protocol.messages.nodes import NodeHardware, WorkerFigures
from protocol.messages.system_info import Cpu, Gpu, MachineInfo
from protocol.models.memory import HOST, Capacity, EngineDevice
from supervisor.machine.device_readings import FIRST_PAUSE_S, INTERVAL_S, REFRESH_TIMEOUT_S
from supervisor.nodes.node_devices import NodeDevices
from supervisor.runtime.jobs import OnEnded

MACHINE = MachineInfo("System", 1, Cpu("Cpu", 1, 1, "x86_64"), amd_gpus=[Gpu("0000:03:00.0", "Card", driver="amdgpu")])
WITH_CARD = NodeHardware(MACHINE, ["amdgpu"])
WITHOUT = NodeHardware(MACHINE)
CARD = DeviceReading("amd", "0000:03:00.0", "0000:03:00.0", total=24, free=20, processes={5: 4})
CAPACITY = Capacity("0000:03:00.0", 24, 20, name="Card")


class NodeDevicesHarness:
    """The parts of a supervisor that the readings use."""

    def __init__(self) -> None:
        self.now, self.closing = 1000.0, False
        self.jobs: list[tuple[str, str, OnEnded]] = []
        """Name, node and end of each job so far."""
        self.orders: list[tuple[str, ReadDevices]] = []
        """Job and order."""
        self._timers: list[tuple[float, Callable[[], None]]] = []
        loop: Any = SimpleNamespace(
            now=lambda: self.now,
            call_later=lambda seconds, call: self._timers.append((self.now + seconds, call)),
            every=lambda _seconds, call: setattr(self, "tick", call),
        )
        jobs: Any = SimpleNamespace(start=self._start, give_up=lambda _job: None)
        bus: Any = SimpleNamespace(send=lambda job, order: self.orders.append((job, order)))
        self.tick: Callable[[], None]
        self.devices = NodeDevices(
            loop=loop,
            jobs=jobs,
            bus=bus,
            workers={"a": [5], "b": [6]}.__getitem__,
            closing=lambda: self.closing,
            on_read=lambda _asked_at: None,
        )
        self.devices.start()

    def _start(self, _module: str, ended: OnEnded, order: ReadDevices, node: str) -> str:
        job = f"j{len(self.jobs) + 1}"
        self.jobs.append((job, node, ended))
        self.orders.append((job, order))
        return job

    def answer(self, job: str, *devices: DeviceReading) -> None:
        """Answer the last order of a job."""
        number = [order.number for name, order in self.orders if name == job][-1]
        self.devices.read(job, DevicesRead(number, list(devices)), b"")

    def end(self, job: str) -> None:
        next(ended for name, _, ended in self.jobs if name == job)(job, "SIGKILL")

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self._timers if timer[0] <= self.now]
        self._timers = [timer for timer in self._timers if timer not in due]
        for _, call in due:
            call()


@pytest.fixture
def harness() -> NodeDevicesHarness:
    return NodeDevicesHarness()


def test_each_node_with_cards_is_read_by_a_job_of_its_own(harness: NodeDevicesHarness) -> None:
    for node in ("a", "b"):
        harness.devices.joined(node, WITH_CARD)
        harness.devices.joined(node, WITH_CARD)
    harness.devices.joined("c", WITHOUT)
    harness.devices.joined("d", None)
    assert [(job, node) for job, node, _ in harness.jobs] == [("j1", "a"), ("j2", "b")]
    assert [order.processes for _, order in harness.orders] == [[5], [6]]
    harness.answer("j1", CARD)
    assert harness.devices.capacities("a") == [CAPACITY]
    assert harness.devices.on_devices("a", [5]) == {"0000:03:00.0": 4}
    for node in ("b", "c", "head"):
        assert harness.devices.capacities(node) == []
        assert harness.devices.on_devices(node, [5]) == {}
    harness.now += INTERVAL_S
    harness.tick()
    assert [job for job, _ in harness.orders] == ["j1", "j2", "j1"], "j2 has not answered yet"


def test_what_an_engine_holds_on_its_node(harness: NodeDevicesHarness) -> None:
    harness.devices.joined("a", WITH_CARD)
    harness.answer("j1", CARD, DeviceReading("amd", "0000:c4:00.0", HOST, processes={5: 2, 7: 1}))
    workers = {
        "w1": WorkerFigures(4, {4: 1, 5: 9}, {HOST: 9}),
        "w2": WorkerFigures(6, {6: 1}, {HOST: 0}),
        "w3": WorkerFigures(6, {6: 1, 7: 8}, {HOST: 8}),
    }
    held = {"w1": {"0000:03:00.0": 4, HOST: 11}, "w2": {}, "w3": {HOST: 9}}
    assert harness.devices.held("a", workers) == held
    assert harness.devices.held("b", workers) == {"w1": {HOST: 9}, "w2": {}, "w3": {HOST: 8}}


def test_a_reading_is_refreshed_for_a_decision(harness: NodeDevicesHarness) -> None:
    called: list[str] = []
    harness.devices.refresh("a", lambda: called.append("no devices"))
    harness.devices.joined("a", WITH_CARD)
    harness.answer("j1", CARD)
    harness.devices.refresh("a", lambda: called.append("read"))
    assert called == ["no devices"]
    harness.answer("j1", CARD)
    assert called == ["no devices", "read"]
    harness.devices.refresh("a", lambda: called.append("too late"))
    harness.wait(REFRESH_TIMEOUT_S)
    assert called == ["no devices", "read", "too late"]


def test_an_engine_gets_the_devices_of_its_node(harness: NodeDevicesHarness) -> None:
    used: list[list[EngineDevice]] = []
    harness.devices.for_engines("c", used.append)
    assert used == [[]]
    harness.devices.joined("a", WITH_CARD)
    harness.devices.for_engines("a", used.append)
    assert used == [[]], "they are being read"
    harness.answer("j1", CARD)
    assert used == [[], [EngineDevice("amd", "0000:03:00.0", free=20)]]


def test_a_job_that_ends_is_replaced_unless_its_node_has_left(harness: NodeDevicesHarness) -> None:
    for node in ("a", "b"):
        harness.devices.joined(node, WITH_CARD)
    harness.end("j1")
    harness.end("j2")
    harness.devices.left("b")
    harness.wait(FIRST_PAUSE_S)
    assert [(job, node) for job, node, _ in harness.jobs] == [("j1", "a"), ("j2", "b"), ("j3", "a")]
    harness.devices.joined("b", WITH_CARD)
    assert harness.jobs[-1][:2] == ("j4", "b"), "it is back"
    harness.closing = True
    harness.end("j3")
    harness.wait(FIRST_PAUSE_S)
    assert len(harness.jobs) == 4


def test_what_is_not_known_names_the_node(harness: NodeDevicesHarness) -> None:
    harness.devices.joined("a", WITH_CARD)
    harness.answer("j1", DeviceReading("amd", "0000:03:00.0", "0000:03:00.0", problem="It hangs"))
    assert harness.devices.problems() == ["node a: It hangs"]
