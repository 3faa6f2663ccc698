"""System info: what the kernel showed at the start, what a job has found since, and what this machine can run.

The vendors' tools (``nvidia-smi``, ``rocm-smi``, ``xrt-smi``, a recipe's own program) and the list of Python packages
take time. So a job process runs them, and only when a request needs their answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import structs

from protocol.messages.system_info import (
    BackendStatus,
    GetSystemInfo,
    Gpu,
    MachineInfo,
    MachineProbed,
    ProgramStatus,
    RecipeStatus,
    SystemInfo,
)
from protocol.models.memory import Capacity
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from supervisor.backends.inventory import INSTALLED, UPDATE_REQUIRED
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs
from supervisor.scheduler.view import SchedulerView
from workers.backends.registry import DESCRIPTORS

TOOLS: Final = (
    *("nvidia-smi", "rocm-smi", "xrt-smi"),
    *(each.backends[0].executable for each in DESCRIPTORS.values() if each.checkpoint_scheme),
)
MODULE: Final = "workers.jobs.probe"
PROBE_INTERVAL_S: Final = 60.0
"""Seconds before a tool is run again, whether it answered or not."""
PROBLEM_INTERVAL_S: Final = 2.0
"""Seconds before a program that cannot run here is asked again: its owner may just have fixed it."""
PROBE_TIMEOUT_S: Final = 15.0
"""Time limit for a tool, which may hang in its driver; then only the kernel's view is known."""

log = logs.get_logger()


def merge_probe(machine: MachineInfo, probed: MachineProbed) -> MachineInfo:
    """Return the machine with the tools' better values, and the devices that only they see."""
    npu = machine.npu
    if npu is not None and probed.npu_power_mode:
        npu = structs.replace(npu, power_mode=probed.npu_power_mode)
    return structs.replace(
        machine,
        amd_gpus=_merge_gpus(machine.amd_gpus, probed.amd_gpus),
        nvidia_gpus=_merge_gpus(machine.nvidia_gpus, probed.nvidia_gpus),
        npu=npu,
    )


def _merge_gpus(kernels: list[Gpu], tools: list[Gpu]) -> list[Gpu]:
    found = {gpu.address: gpu for gpu in kernels}
    for gpu in tools:
        known = found.get(gpu.address, gpu)
        reported = {name: value for name, value in structs.asdict(gpu).items() if value}
        # Lists of names tell integrated graphics apart, which rocm-smi does not.
        found[gpu.address] = structs.replace(known, **{**reported, "name": known.name or gpu.name})
    return [found[address] for address in sorted(found)]


def apply_program_status(recipes: Mapping[str, RecipeStatus], programs: Mapping[str, ProgramStatus]) -> None:
    """Add to installed backends the version of their program, and what its owner must do before it can run."""
    for recipe, report in recipes.items():
        descriptor = DESCRIPTORS.get(recipe)
        status = programs.get(descriptor.checkpoint_scheme) if descriptor else None
        for name, backend in report.backends.items() if status else ():
            if status is not None and backend.state == INSTALLED:
                report.backends[name] = _with_program(backend, status)


def apply_program_devices(recipes: Mapping[str, RecipeStatus], devices: Mapping[str, list[str]]) -> None:
    """Show the devices that users' own programs find, by ``RECIPE:BACKEND``."""
    for name, kinds in devices.items():
        recipe, _, backend = name.partition(":")
        known = recipes[recipe].backends if recipe in recipes else {}
        for each, status in known.items():
            if each == backend and status.state == INSTALLED:
                known[each] = structs.replace(status, devices=kinds)


def _with_program(backend: BackendStatus, program: ProgramStatus) -> BackendStatus:
    version = program.version or backend.version
    if not program.problem:
        return structs.replace(backend, version=version)
    return BackendStatus(backend.devices, UPDATE_REQUIRED, program.problem, program.action, version)


class SystemInspection:
    """Answers questions about the machine. At most one job inspects it at a time."""

    def __init__(
        self,
        machine: MachineInfo,
        recipes: Callable[[Collection[str]], dict[str, RecipeStatus]],
        loop: Loop,
        view: SchedulerView,
        jobs: Jobs,
        memory: Callable[[], list[Capacity]],
        calls: GatewayCalls,
    ) -> None:
        """Begin with the kernel's view. ``recipes`` returns what a machine with such devices can run, ``memory`` what is free."""
        self._memory = memory
        self._loop, self._view, self._jobs, self._calls = loop, view, jobs, calls
        self._machine = machine
        """What is known so far."""
        self._from_kernel = machine
        self._recipes = recipes
        self._tools = [tool for tool in TOOLS if shutil.which(tool)]
        self._probed: MachineProbed | None = None
        self._probed_at: float | None = None
        self._waiting: list[tuple[str, GetSystemInfo]] = []
        self._probing = False
        self._job = ""
        self._timeout: Timer | None = None

    def devices(self) -> Collection[str]:
        """Return the kinds of devices that are known so far."""
        return self._machine.devices

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GetSystemInfo: self._get, MachineProbed: self._result}

    def _get(self, peer: str, call: GetSystemInfo, _payload: bytes) -> None:
        if self._view.closing or self._is_current(call, self._loop.now()):
            self._answer(peer, call)
            return
        self._waiting.append((peer, call))
        if not self._probing:
            self._begin()

    def _is_current(self, call: GetSystemInfo, now: float) -> bool:
        """Return whether what is known is recent enough for a call.

        The tools are asked once; for verbose calls, once a minute; and sooner while one of the programs cannot run.
        """
        if self._probing:
            return False
        problem = self._probed is not None and any(status.problem for status in self._probed.programs.values())
        if problem and self._probed_at is not None:
            return now - self._probed_at < PROBLEM_INTERVAL_S
        fresh = self._probed_at is not None and now - self._probed_at < PROBE_INTERVAL_S
        return fresh or (not call.verbose and (not self._tools or self._probed is not None))

    def _answer(self, peer: str, call: GetSystemInfo) -> None:
        packages = self._probed.packages if call.verbose and self._probed else None
        recipes = self._recipes(self._machine.devices)
        if self._probed is not None:
            apply_program_status(recipes, self._probed.programs)
            apply_program_devices(recipes, self._probed.program_devices)
        report = SystemInfo(self._machine, recipes, packages, self._memory())
        self._calls.reply(peer, call.number, report)

    def _begin(self) -> None:
        self._probing = True
        self._probed_at = self._loop.now()
        self._job = self._jobs.start(MODULE, self._ended)
        self._timeout = self._loop.call_later(PROBE_TIMEOUT_S, self._time_out)

    def _result(self, peer: str, message: MachineProbed, _payload: bytes) -> None:
        self._jobs.dismiss(peer)
        if peer != self._job:
            return
        for explanation in message.probe_errors:
            log.warning("a tool did not answer", reason=explanation)
        self._probed = message
        self._machine = merge_probe(self._from_kernel, message)
        self._answer_all()

    def _answer_all(self) -> None:
        self._probing = False
        waiting, self._waiting = self._waiting, []
        for peer, call in waiting:
            self._answer(peer, call)

    def _time_out(self) -> None:
        log.warning("the machine was not inspected in time", seconds=PROBE_TIMEOUT_S)
        self._answer_all()
        self._jobs.kill(self._job)

    def _ended(self, job: str, why: str) -> None:
        if job == self._job:
            if self._timeout is not None:
                self._timeout.cancel()
            if self._probing:
                log.warning("the inspection of the machine ended without a result", reason=why)
                self._answer_all()
