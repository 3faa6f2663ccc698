"""Who is asked about the machine, when, and what is answered if nobody says anything. No process, no clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.machine import Cpu, GetSystemInfo, Gpu, Machine, Npu, Probed, SystemInfo
from supervisor import inspection
from supervisor.inspection import FRESH_S, PATIENCE_S, Inspection, merged

CARD = Gpu("0000:03:00.0", "Card", "gfx1100", 5, "amdgpu", "6.1")
MACHINE = Machine("System", 1, Cpu("Cpu", 1, 1, "x86_64"), amd_gpus=[CARD], npu=Npu("NPU", driver="amdxdna"))
FOUND = Probed(nvidia_gpus=[Gpu("0000:04:00.0", "Other", driver="nvidia")], packages=["a==1"])


class World:
    """A house of which only what an inspection uses is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tools: Collection[str] = ()) -> None:
        self.released: list[str] = []
        monkeypatch.setattr(shutil, "which", lambda name: name if name in tools else None)
        self.time = 1000.0
        self.answers: dict[tuple[str, int], SystemInfo] = {}
        self.jobs: list[tuple[str, Callable[[str], None]]] = []
        self.killed = 0
        self.present = {"g1", "g2"}
        self.timers: list[Any] = []
        self.house = cast(
            "Any",
            SimpleNamespace(
                scheduler=SimpleNamespace(closing=False),
                loop=SimpleNamespace(now=lambda: self.time, call_later=self._later),
                processes=SimpleNamespace(start=self._start, kill=self._kill),
                peers=SimpleNamespace(
                    get=lambda peer: peer if peer in self.present else None, remove=lambda _peer: None
                ),
                bus=SimpleNamespace(forget=lambda _peer: None, send=lambda peer, _leave: self.released.append(peer)),
                orders={},
                endpoint=lambda job: f"ipc:///nowhere/{job}",
                answer=lambda peer, number, report: self.answers.update({(peer, number): report}),
                on_quiet=lambda: None,
            ),
        )
        self.inspection = Inspection(MACHINE, lambda devices: {"on": list(devices)})

    def _later(self, seconds: float, callback: Callable[[], None]) -> Any:
        timer = SimpleNamespace(seconds=seconds, callback=callback, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def _start(self, _role: str, module: str, died: Callable[[str], None], extra: dict[str, str]) -> object:
        assert module == inspection.MODULE
        self.jobs.append((extra["LEMONBUS_PEER"], died))
        return object()

    def _kill(self, _child: object) -> None:
        self.killed += 1

    def ask(self, number: int, peer: str = "g1", *, verbose: bool = False) -> None:
        call = GetSystemInfo(number, verbose)
        self.inspection.handlers()[GetSystemInfo](self.house, peer, call, b"")

    def tell(self, found: Probed = FOUND, peer: str = "") -> None:
        self.inspection.handlers()[Probed](self.house, peer or self.jobs[-1][0], found, b"")

    def end(self, job: int = -1) -> None:
        self.jobs[job][1]("exit 0")


def test_without_tools_the_kernels_word_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.ask(1)
    assert world.answers == {("g1", 1): SystemInfo(MACHINE, {"on": MACHINE.devices})}
    assert world.jobs == []


def test_with_tools_the_first_waits_for_them_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, ["nvidia-smi"])
    world.ask(1)
    world.ask(2, "g2")
    assert (len(world.jobs), world.answers) == (1, {})
    world.tell()
    assert set(world.answers) == {("g1", 1), ("g2", 2)}
    assert world.released == [world.jobs[0][0]], "a job goes when its word was heard"
    assert world.answers["g1", 1].machine.nvidia_gpus == FOUND.nvidia_gpus
    assert "nvidia_gpu" in world.answers["g1", 1].recipes["on"]
    assert world.answers["g1", 1].packages is None
    world.ask(3)
    assert ("g1", 3) in world.answers, "while the job is still ending"
    world.end()
    assert world.timers[0].cancelled
    world.time += 10 * FRESH_S
    world.ask(4)
    assert (len(world.jobs), len(world.answers)) == (1, 4)


def test_verbose_asks_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.ask(1, verbose=True)
    assert world.answers == {}
    world.tell()
    world.end()
    assert world.answers["g1", 1].packages == ["a==1"]
    world.time += FRESH_S - 1
    world.ask(2, verbose=True)
    assert (len(world.jobs), world.answers["g1", 2].packages) == (1, ["a==1"])
    world.time += 2
    world.ask(3, verbose=True)
    assert (len(world.jobs), ("g1", 3) in world.answers) == (2, False)


def test_a_job_that_dies_leaves_the_kernels_word_and_is_not_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, ["rocm-smi"])
    world.ask(1)
    world.end()
    assert world.answers["g1", 1].machine == MACHINE
    world.ask(2)
    assert (len(world.jobs), ("g1", 2) in world.answers) == (1, True)
    world.time += FRESH_S + 1
    world.ask(3)
    assert len(world.jobs) == 2


def test_a_job_that_hangs_is_killed_and_what_it_says_later_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, ["rocm-smi"])
    world.ask(1)
    (timer,) = world.timers
    assert timer.seconds == PATIENCE_S
    timer.callback()
    assert (world.killed, world.answers["g1", 1].machine) == (1, MACHINE)
    world.tell(peer="j-somebody")
    assert world.inspection.machine == MACHINE
    world.end()
    assert len(world.answers) == 1


def test_a_caller_that_is_gone_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, ["rocm-smi"])
    world.ask(1)
    world.present.clear()
    world.tell()
    assert world.answers == {}


def test_a_house_that_closes_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, ["rocm-smi"])
    world.house.scheduler.closing = True
    world.ask(1, verbose=True)
    assert (world.jobs, len(world.answers)) == ([], 1)


def test_what_tools_say_is_put_under_what_is_known() -> None:
    told = Gpu("0000:03:00.0", "AMD Radeon Graphics", memory=7, driver="amdgpu", driver_version="6.8")
    unnamed = Gpu("0000:01:00.0", "AMD Instinct", driver="amdgpu")
    found = merged(MACHINE, Probed([told, unnamed], npu_power_mode="Turbo"))
    assert found.amd_gpus == [unnamed, Gpu("0000:03:00.0", "Card", "gfx1100", 7, "amdgpu", "6.8")]
    assert found.npu is not None
    assert found.npu.power_mode == "Turbo"
    assert merged(MACHINE, Probed()) == MACHINE
