"""Which tools are asked about the machine, when, and the result if none answers. No process, no clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.messages.system_info import (
    BackendStatus,
    Cpu,
    GetSystemInfo,
    Gpu,
    MachineInfo,
    MachineProbed,
    Npu,
    ProgramStatus,
    RecipeStatus,
    SystemInfo,
)
from protocol.models.memory import Capacity
from supervisor.handlers import system_info
from supervisor.handlers.system_info import (
    PROBE_INTERVAL_S,
    PROBE_TIMEOUT_S,
    PROBLEM_INTERVAL_S,
    SystemInspection,
    apply_program_devices,
    merge_probe,
)
from supervisor.runtime.jobs import OnEnded

CARD = Gpu("0000:03:00.0", "Card", "gfx1100", 5, "amdgpu", "6.1")
MACHINE = MachineInfo("System", 1, Cpu("Cpu", 1, 1, "x86_64"), amd_gpus=[CARD], npu=Npu("NPU", driver="amdxdna"))
MEMORY = [Capacity("host", 10, 4)]
FOUND = MachineProbed(nvidia_gpus=[Gpu("0000:04:00.0", "Other", driver="nvidia")], packages=["a==1"])


class InspectionHarness:
    """The parts of a supervisor that an inspection uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tools: Collection[str] = ()) -> None:
        self.released: list[str] = []
        monkeypatch.setattr(shutil, "which", lambda name: name if name in tools else None)
        self.time = 1000.0
        self.answers: dict[tuple[str, int], SystemInfo] = {}
        self.jobs: list[tuple[str, OnEnded]] = []
        self.killed = 0
        self.timers: list[Any] = []
        self.view: Any = SimpleNamespace(closing=False)
        loop: Any = SimpleNamespace(now=lambda: self.time, call_later=self._later)
        jobs: Any = SimpleNamespace(start=self._start, kill=self._kill, dismiss=self.released.append)
        calls: Any = SimpleNamespace(reply=self._reply)
        self.inspection = SystemInspection(
            machine=MACHINE,
            recipes=lambda devices: {"on": list(devices)},
            loop=loop,
            view=self.view,
            jobs=jobs,
            memory=lambda: MEMORY,
            calls=calls,
        )

    def _later(self, seconds: float, callback: Callable[[], None]) -> Any:
        timer = SimpleNamespace(seconds=seconds, callback=callback, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def _start(self, module: str, ended: OnEnded) -> str:
        assert module == system_info.MODULE
        job = f"j{len(self.jobs) + 1}"
        self.jobs.append((job, ended))
        return job

    def _kill(self, job: str) -> None:
        assert job == self.jobs[-1][0]
        self.killed += 1

    def _reply(self, peer: str, number: int, report: SystemInfo) -> None:
        self.answers[peer, number] = report

    def ask(self, number: int, peer: str = "g1", *, verbose: bool = False) -> None:
        call = GetSystemInfo(number, verbose)
        self.inspection.handlers()[GetSystemInfo](peer, call, b"")

    def report_result(self, found: MachineProbed = FOUND, peer: str = "") -> None:
        self.inspection.handlers()[MachineProbed](peer or self.jobs[-1][0], found, b"")

    def end(self, job: int = -1) -> None:
        name, ended = self.jobs[job]
        ended(name, "exit 0")


def test_without_tools_the_answer_is_what_the_kernel_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InspectionHarness(monkeypatch)
    harness.ask(1)
    assert harness.answers == {("g1", 1): SystemInfo(MACHINE, {"on": MACHINE.devices}, memory=MEMORY)}
    assert harness.jobs == []


def test_with_tools_the_first_waits_for_them_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InspectionHarness(monkeypatch, ["nvidia-smi"])
    harness.ask(1)
    harness.ask(2, "g2")
    assert (len(harness.jobs), harness.answers) == (1, {})
    harness.report_result()
    assert set(harness.answers) == {("g1", 1), ("g2", 2)}
    assert harness.released == [harness.jobs[0][0]], "a job exits when its result was read"
    assert harness.answers["g1", 1].machine.nvidia_gpus == FOUND.nvidia_gpus
    assert "nvidia_gpu" in harness.answers["g1", 1].recipes["on"]
    assert harness.answers["g1", 1].packages is None
    harness.ask(3)
    assert ("g1", 3) in harness.answers, "while the job is still ending"
    harness.end()
    assert harness.timers[0].cancelled
    harness.time += 10 * PROBE_INTERVAL_S
    harness.ask(4)
    assert (len(harness.jobs), len(harness.answers)) == (1, 4)


def test_a_verbose_call_asks_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InspectionHarness(monkeypatch)
    harness.ask(1, verbose=True)
    assert harness.answers == {}
    harness.report_result()
    harness.end()
    assert harness.answers["g1", 1].packages == ["a==1"]
    harness.time += PROBE_INTERVAL_S - 1
    harness.ask(2, verbose=True)
    assert (len(harness.jobs), harness.answers["g1", 2].packages) == (1, ["a==1"])
    harness.time += 2
    harness.ask(3, verbose=True)
    assert (len(harness.jobs), ("g1", 3) in harness.answers) == (2, False)


def test_a_program_that_cannot_run_is_asked_again_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InspectionHarness(monkeypatch, ["rocm-smi"])
    harness.ask(1)
    harness.report_result(
        MachineProbed(programs={"flm": ProgramStatus("1.0", "flm cannot use the NPU.", "flm validate")})
    )
    harness.end()
    harness.ask(2)
    assert len(harness.jobs) == 1
    harness.time += PROBLEM_INTERVAL_S + 1
    harness.ask(3)
    assert (len(harness.jobs), ("g1", 3) in harness.answers) == (2, False)
    harness.report_result(MachineProbed(programs={"flm": ProgramStatus("1.1")}))
    harness.end()
    harness.time += 10 * PROBE_INTERVAL_S
    harness.ask(4)
    assert (len(harness.jobs), ("g1", 4) in harness.answers) == (2, True)


def test_a_job_that_dies_leaves_what_the_kernel_shows_and_is_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = InspectionHarness(monkeypatch, ["rocm-smi"])
    harness.ask(1)
    harness.end()
    assert harness.answers["g1", 1].machine == MACHINE
    harness.ask(2)
    assert (len(harness.jobs), ("g1", 2) in harness.answers) == (1, True)
    harness.time += PROBE_INTERVAL_S + 1
    harness.ask(3)
    assert len(harness.jobs) == 2


def test_a_hung_job_is_killed_and_its_late_result_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InspectionHarness(monkeypatch, ["rocm-smi"])
    harness.ask(1)
    (timer,) = harness.timers
    assert timer.seconds == PROBE_TIMEOUT_S
    timer.callback()
    assert (harness.killed, harness.answers["g1", 1].machine) == (1, MACHINE)
    harness.report_result(peer="j-another")
    assert harness.inspection._machine == MACHINE
    harness.end()
    assert len(harness.answers) == 1


def test_a_closing_supervisor_starts_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InspectionHarness(monkeypatch, ["rocm-smi"])
    harness.view.closing = True
    harness.ask(1, verbose=True)
    assert (harness.jobs, len(harness.answers)) == ([], 1)


def test_reports_of_tools_are_merged_into_what_is_known() -> None:
    reported = Gpu("0000:03:00.0", "AMD Radeon Graphics", memory=7, driver="amdgpu", driver_version="6.8")
    unnamed = Gpu("0000:01:00.0", "AMD Instinct", driver="amdgpu")
    found = merge_probe(MACHINE, MachineProbed([reported, unnamed], npu_power_mode="Turbo"))
    assert found.amd_gpus == [unnamed, Gpu("0000:03:00.0", "Card", "gfx1100", 7, "amdgpu", "6.8")]
    assert found.npu is not None
    assert found.npu.power_mode == "Turbo"
    assert merge_probe(MACHINE, MachineProbed()) == MACHINE


def test_the_devices_that_a_users_own_program_finds() -> None:
    backends = {"cpu": BackendStatus(["cpu"], "installed"), "system": BackendStatus(["cpu"], "installed")}
    recipes = {"llamacpp": RecipeStatus(backends=backends)}
    apply_program_devices(recipes, {"llamacpp:system": ["cpu", "nvidia_gpu"], "other:system": ["x"]})
    assert {name: status.devices for name, status in backends.items()} == {
        "cpu": ["cpu"],
        "system": ["cpu", "nvidia_gpu"],
    }
    backends["system"] = BackendStatus([], "installable")
    apply_program_devices(recipes, {"llamacpp:system": ["cpu", "nvidia_gpu"]})
    assert backends["system"].devices == []
