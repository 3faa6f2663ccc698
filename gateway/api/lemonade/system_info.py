"""``system-info``: the machine, its devices and the recipes that run on them, with the field names of all documents."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.routes import HttpCaller, route
from protocol import RELEASE
from protocol.messages.system_info import Cpu, GetSystemInfo, Gpu, MachineInfo, Npu, SystemInfo

_GIBI: Final = 1 << 30
_MEBI: Final = 1 << 20
_ABSENT: Final = {"available": False}


class SystemInfoQuery(msgspec.Struct):
    """With Python packages and other facts that help to find a fault."""

    verbose: bool = False


class SystemInfoAnswer(msgspec.Struct, kw_only=True):
    """The machine, its devices, and the recipes that run on them."""

    system: str = msgspec.field(name="OS Version")
    processor: str = msgspec.field(name="Processor")
    memory: str = msgspec.field(name="Physical Memory")
    devices: dict[str, Any]
    recipes: dict[str, Any]
    packages: list[str] | msgspec.UnsetType = msgspec.field(name="Python Packages", default=msgspec.UNSET)
    lemonbus: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


@route("GET", "system-info")
def show_system_info(caller: HttpCaller, query: SystemInfoQuery) -> SystemInfoAnswer:
    """Shows the machine and the recipes that run on it."""
    info = caller.ask(lambda number: GetSystemInfo(number, query.verbose), SystemInfo)
    return system_info(info, verbose=query.verbose)


def system_info(info: SystemInfo, *, verbose: bool) -> SystemInfoAnswer:
    """Return the fields of all documents except those of Windows; our own fields are under ``lemonbus``."""
    machine = info.machine
    more = {"version": RELEASE, "memory_bytes": machine.memory, **machine.more}
    return SystemInfoAnswer(
        system=machine.system,
        processor=machine.cpu.name,
        memory=f"{machine.memory / _GIBI:.1f} GB",
        devices=devices(machine),
        recipes=info.recipes,
        packages=msgspec.UNSET if not verbose or info.packages is None else info.packages,
        lemonbus=more if verbose else msgspec.UNSET,
    )


def devices(machine: MachineInfo) -> dict[str, Any]:
    """Return every device, under each name that a document gives it."""
    amd = [_gpu(gpu, "AMD") for gpu in machine.amd_gpus]
    integrated = [shown for gpu, shown in zip(machine.amd_gpus, amd, strict=True) if gpu.integrated]
    npu = _npu(machine.npu)
    return {
        "cpu": _cpu(machine.cpu),
        "amd_gpu": amd,
        "amd_igpu": integrated[0] if integrated else _ABSENT,
        "amd_dgpu": [shown for shown in amd if shown not in integrated],
        "nvidia_gpu": [_gpu(gpu, "NVIDIA") for gpu in machine.nvidia_gpus],
        "amd_npu": npu,
        "npu": npu,
    }


def _cpu(cpu: Cpu) -> dict[str, Any]:
    about = {"name": cpu.name, "cores": cpu.cores, "threads": cpu.threads}
    return {**about, "available": True, "family": cpu.family}


def _gpu(gpu: Gpu, maker: str) -> dict[str, Any]:
    """Return a graphics card; an unknown size is null."""
    return {
        "name": gpu.name or f"{maker} GPU",
        "vram_gb": round(gpu.memory / _GIBI, 1) if gpu.memory else None,
        "memory_mb": gpu.memory // _MEBI if gpu.memory else None,
        "driver_version": gpu.driver_version,
        "available": gpu.available,
        "family": gpu.family,
        "integrated": gpu.integrated,
        "pci": gpu.address,
    }


def _npu(npu: Npu | None) -> dict[str, Any]:
    if npu is None:
        return _ABSENT
    return {
        "name": npu.name,
        "power_mode": npu.power_mode or "Unknown",
        "driver_version": npu.driver_version,
        "available": npu.available,
        "family": npu.family,
    }
