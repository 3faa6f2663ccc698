"""``system-info``: the machine, its devices and the recipes that run on them, with the field names of all documents."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from gateway.api.common.machine_memory import MemoryEntry, memory_entries
from gateway.api.common.routes import HttpCaller, route
from protocol import RELEASE
from protocol.messages.system_info import GetSystemInfo, Gpu, MachineInfo, Npu, RecipeStatus, SystemInfo

_GIBI: Final = 1 << 30
_MEBI: Final = 1 << 20


class SystemInfoQuery(msgspec.Struct, omit_defaults=True):
    """With Python packages and other facts that help to find a fault."""

    verbose: bool = False


class DeviceEntry(msgspec.Struct, kw_only=True):
    """A device. If there is none of its kind, only `available` is there."""

    available: bool
    """Whether this machine's programs can use it."""
    name: str | UnsetType = UNSET
    family: str | UnsetType = UNSET
    """The architecture."""
    driver_version: str | UnsetType = UNSET


class CpuEntry(DeviceEntry, kw_only=True):
    """The processor."""

    cores: int
    threads: int


class GpuEntry(DeviceEntry, kw_only=True):
    """A graphics card. A size that is unknown is null."""

    vram_gb: float | UnsetType | None = UNSET
    memory_mb: int | UnsetType | None = UNSET
    integrated: bool | UnsetType = UNSET
    pci: str | UnsetType = UNSET
    """The address on its bus."""


class NpuEntry(DeviceEntry, kw_only=True):
    """A neural processor."""

    power_mode: str | UnsetType = UNSET


class Devices(msgspec.Struct, kw_only=True):
    """Every device, under each name that a document gives it."""

    cpu: CpuEntry
    amd_gpu: list[GpuEntry]
    amd_igpu: GpuEntry
    amd_dgpu: list[GpuEntry]
    nvidia_gpu: list[GpuEntry]
    amd_npu: NpuEntry
    npu: NpuEntry


class SystemInfoAnswer(msgspec.Struct, kw_only=True):
    """The machine, its devices, and the recipes that run on them."""

    system: str = msgspec.field(name="OS Version")
    processor: str = msgspec.field(name="Processor")
    memory: str = msgspec.field(name="Physical Memory")
    devices: Devices
    recipes: dict[str, RecipeStatus]
    memory_places: list[MemoryEntry] = msgspec.field(name="memory")
    """What is free now on the host, and on each device with memory of its own."""
    packages: list[str] | UnsetType = msgspec.field(name="Python Packages", default=UNSET)
    lemonbus: dict[str, str | int] | UnsetType = UNSET
    """Facts that help to find a fault."""


@route("GET", "system-info")
def show_system_info(caller: HttpCaller, query: SystemInfoQuery) -> SystemInfoAnswer:
    """Shows the machine and the recipes that run on it."""
    info = caller.ask(lambda number: GetSystemInfo(number, query.verbose), SystemInfo)
    return system_info(info, verbose=query.verbose, detail=caller.context.is_admin)


def system_info(info: SystemInfo, *, verbose: bool, detail: bool = False) -> SystemInfoAnswer:
    """Return the fields of all documents except those of Windows; our own fields are ``memory`` and ``lemonbus``.

    ``detail``: with the names of control groups, which only administrators may read.
    """
    machine = info.machine
    more: dict[str, str | int] = {"version": RELEASE, "memory_bytes": machine.memory, **machine.more}
    return SystemInfoAnswer(
        system=machine.system,
        processor=machine.cpu.name,
        memory=f"{machine.memory / _GIBI:.1f} GB",
        devices=devices(machine),
        recipes=info.recipes,
        memory_places=memory_entries(info.memory, detail=detail),
        packages=UNSET if not verbose or info.packages is None else info.packages,
        lemonbus=more if verbose else UNSET,
    )


def devices(machine: MachineInfo) -> Devices:
    """Return every device, under each name that a document gives it."""
    cpu = machine.cpu
    amd = [_gpu(gpu, "AMD") for gpu in machine.amd_gpus]
    npu = _npu(machine.npu)
    return Devices(
        cpu=CpuEntry(available=True, name=cpu.name, family=cpu.family, cores=cpu.cores, threads=cpu.threads),
        amd_gpu=amd,
        amd_igpu=next((gpu for gpu in amd if gpu.integrated), GpuEntry(available=False)),
        amd_dgpu=[gpu for gpu in amd if not gpu.integrated],
        nvidia_gpu=[_gpu(gpu, "NVIDIA") for gpu in machine.nvidia_gpus],
        amd_npu=npu,
        npu=npu,
    )


def _gpu(gpu: Gpu, maker: str) -> GpuEntry:
    return GpuEntry(
        available=gpu.available,
        name=gpu.name or f"{maker} GPU",
        family=gpu.family,
        driver_version=gpu.driver_version,
        vram_gb=round(gpu.memory / _GIBI, 1) if gpu.memory else None,
        memory_mb=gpu.memory // _MEBI if gpu.memory else None,
        integrated=gpu.integrated,
        pci=gpu.address,
    )


def _npu(npu: Npu | None) -> NpuEntry:
    if npu is None:
        return NpuEntry(available=False)
    return NpuEntry(
        available=npu.available,
        name=npu.name,
        family=npu.family,
        driver_version=npu.driver_version,
        power_mode=npu.power_mode or "Unknown",
    )
