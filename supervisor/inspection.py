"""System info: what the kernel told at the start, what a job found out since, and what can be run on that.

The makers' own tools (``nvidia-smi``, ``rocm-smi``, ``xrt-smi``, ``flm``) and the list of Python packages take their time,
so a job process asks them, and only when somebody wants to know what they say.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from msgspec import structs

from protocol import logs
from protocol.loop import Timer
from protocol.machine import GetSystemInfo, Gpu, Machine, Probed, SystemInfo
from supervisor import jobs
from supervisor.backends import INSTALLED
from supervisor.house import Handler, House
from supervisor.processes import Child

TOOLS: Final = ("nvidia-smi", "rocm-smi", "xrt-smi", "flm")
MODULE: Final = "workers.jobs.probe"
FRESH_S: Final = 60.0
"""So long nobody is asked again, whether there was an answer or not."""
PATIENCE_S: Final = 15.0
"""A tool may hang in a driver that does; then the kernel's word has to do."""

log = logs.get()


def merged(machine: Machine, probed: Probed) -> Machine:
    """Return the machine with what the tools know better, and the devices that only they see."""
    npu = machine.npu
    if npu is not None and probed.npu_power_mode:
        npu = structs.replace(npu, power_mode=probed.npu_power_mode)
    return structs.replace(
        machine,
        amd_gpus=_merged(machine.amd_gpus, probed.amd_gpus),
        nvidia_gpus=_merged(machine.nvidia_gpus, probed.nvidia_gpus),
        npu=npu,
    )


def _merged(kernels: list[Gpu], tools: list[Gpu]) -> list[Gpu]:
    found = {gpu.address: gpu for gpu in kernels}
    for gpu in tools:
        known = found.get(gpu.address, gpu)
        told = {name: value for name, value in structs.asdict(gpu).items() if value}
        # Lists of names tell integrated graphics apart, which rocm-smi does not.
        found[gpu.address] = structs.replace(known, **{**told, "name": known.name or gpu.name})
    return [found[address] for address in sorted(found)]


def tell_of_flm(recipes: dict[str, Any], trouble: str) -> None:
    """Put what ``flm`` finds wrong beside its installed backends."""
    for backend in recipes.get("flm", {}).get("backends", {}).values():
        if trouble and backend["state"] == INSTALLED:
            backend["message"] = trouble


class Inspection:
    """Answers for the machine; at most one job looks at it at a time."""

    def __init__(self, machine: Machine, recipes: Callable[[Collection[str]], dict[str, Any]]) -> None:
        """Take the kernel's word; ``recipes`` says what can be run on a machine with such devices."""
        self.machine = machine
        """As far as is known by now."""
        self._kernels = machine
        self._recipes = recipes
        self._tools = [tool for tool in TOOLS if shutil.which(tool)]
        self._probed: Probed | None = None
        self._asked_at: float | None = None
        self._waiting: list[tuple[str, GetSystemInfo]] = []
        self._looking = False
        self._job = ""
        self._child: Child | None = None
        self._patience: Timer | None = None

    def handlers(self) -> dict[type, Handler]:
        """Return what each message means."""
        return {GetSystemInfo: self._get, Probed: self._tell}

    def _get(self, house: House, peer: str, call: GetSystemInfo, _payload: bytes) -> None:
        if house.scheduler.closing or self._suffices(call, house.loop.now()):
            self._answer(house, peer, call)
            return
        self._waiting.append((peer, call))
        if not self._looking:
            self._begin(house)

    def _suffices(self, call: GetSystemInfo, now: float) -> bool:
        """Return whether what is known is new enough for a call: the tools' word is asked for once, or if verbose."""
        if self._looking:
            return False
        fresh = self._asked_at is not None and now - self._asked_at < FRESH_S
        return fresh or (not call.verbose and (not self._tools or self._probed is not None))

    def _answer(self, house: House, peer: str, call: GetSystemInfo) -> None:
        packages = self._probed.packages if call.verbose and self._probed else None
        recipes = self._recipes(self.machine.devices)
        if self._probed is not None:
            tell_of_flm(recipes, self._probed.flm)
        report = SystemInfo(self.machine, recipes, packages)
        jobs.tell(house, peer, call.number, report)

    def _begin(self, house: House) -> None:
        self._looking = True
        self._asked_at = house.loop.now()
        self._job, self._child = jobs.start(house, MODULE, self._ended)
        self._patience = house.loop.call_later(PATIENCE_S, partial(self._give_up, house))

    def _tell(self, house: House, peer: str, message: Probed, _payload: bytes) -> None:
        jobs.release(house, peer)
        if peer != self._job:
            return
        for trouble in message.troubles:
            log.warning("a tool did not answer", problem=trouble)
        self._probed = message
        self.machine = merged(self._kernels, message)
        self._answer_all(house)

    def _answer_all(self, house: House) -> None:
        self._looking = False
        waiting, self._waiting = self._waiting, []
        for peer, call in waiting:
            self._answer(house, peer, call)

    def _give_up(self, house: House) -> None:
        log.warning("the machine was not looked at in time", seconds=PATIENCE_S)
        self._answer_all(house)
        if self._child is not None:
            house.processes.kill(self._child)

    def _ended(self, house: House, job: str, why: str) -> None:
        if job == self._job:
            self._child = None
            if self._patience is not None:
                self._patience.cancel()
            if self._looking:
                log.warning("nobody looked at the machine", why=why)
                self._answer_all(house)
