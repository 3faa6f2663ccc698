"""When the memory is read for the scheduler, and that nothing is loaded by figures that are not true any more."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.messages.engines import StartEngine
from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from protocol.models.recipes import ModelSpec
from supervisor.machine.memory_reader import MemoryReader
from supervisor.scheduler.effects import SendMessage, SpawnWorker
from supervisor.scheduler.inputs import ModelTarget, SchedulerLimits
from supervisor.scheduler.scheduler import Scheduler

GPU = "0000:c4:00.0"
SPEC = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/m.gguf")
NOW = 100.0


class ReadableDevices:
    """Devices that are read when the test says so."""

    def __init__(self, free: int | None) -> None:
        self.free = free
        self.waiting: list[Callable[[], None]] = []

    def capacities(self) -> list[Capacity]:
        return [] if self.free is None else [Capacity(GPU, 100, self.free)]

    def refresh(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()


class CountingMachine:
    def __init__(self, devices: ReadableDevices) -> None:
        self._devices = devices
        self.reads = 0

    def read(self) -> list[Capacity]:
        self.reads += 1
        return [Capacity(HOST, 100, 100), *self._devices.capacities()]


class ReaderParts:
    """A scheduler, and what reads the memory for it. Its model needs 60 bytes of a GPU."""

    def __init__(self, gpu_free: int | None) -> None:
        numbers = iter(range(100))
        limits = SchedulerLimits(memory_reserve=0, device_memory_reserve=0)
        self.scheduler = Scheduler(limits, lambda: f"w{next(numbers)}")
        self.devices = ReadableDevices(gpu_free)
        self.machine = CountingMachine(self.devices)
        self.reader = MemoryReader(
            self.machine,  # type: ignore[arg-type]
            self.devices,  # type: ignore[arg-type]
            lambda _worker: {},
            self.scheduler,
            lambda _node: None,
        )
        self.reader.on_read = self.decide
        self.started: list[str] = []
        self.workers: list[str] = []
        self.decide()
        self.scheduler.worker_reported("w0")
        self.scheduler.load_requested("g1", 1, ModelTarget("m", "llm", SPEC), NOW)
        self.decide()

    def decide(self) -> None:
        self.reader.read_if_wanted(NOW)
        self.scheduler.reconcile(NOW)
        for effect in self.scheduler.effects():
            match effect:
                case SpawnWorker(worker):
                    self.workers.append(worker)
                case SendMessage(worker, StartEngine()):
                    self.started.append(worker)

    def check(self) -> None:
        self.scheduler.model_checked("w0", MemoryEstimate({GPU: PlaceNeed(60)}))
        self.decide()


def test_the_host_is_read_at_once_and_only_if_something_depends_on_it() -> None:
    parts = ReaderParts(None)
    assert parts.machine.reads == 0
    parts.check()
    assert (parts.machine.reads, parts.started) == (1, ["w0"])
    parts.decide()
    assert parts.machine.reads == 1


def test_nothing_is_loaded_before_the_devices_were_read() -> None:
    parts = ReaderParts(100)
    parts.check()
    parts.decide()
    assert (parts.started, len(parts.devices.waiting)) == ([], 1)
    parts.devices.answer()
    assert parts.started == ["w0"]


def test_devices_are_read_again_if_a_worker_with_a_model_has_ended_meanwhile() -> None:
    parts = ReaderParts(10)
    parts.check()
    assert len(parts.devices.waiting) == 1
    other = parts.workers[-1]
    parts.scheduler.worker_reported(other)
    parts.scheduler.load_requested("g1", 2, ModelTarget("n", "llm", structs.replace(SPEC, name="n")), NOW)
    parts.decide()
    parts.scheduler.worker_gone(other, Failure(Code.WORKER_GONE, "SIGKILL"), NOW)
    parts.devices.answer()
    assert (parts.started, len(parts.devices.waiting)) == ([], 1), "the figures are from before its end"
    parts.devices.free = 100
    parts.devices.answer()
    assert parts.started == ["w0"]
