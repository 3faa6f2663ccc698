"""``system-info``: the machine, its devices and the recipes that run on them, with the field names of all documents."""

from __future__ import annotations

from typing import Any, Final

import falcon
import msgspec

from gateway.api.common.request_fields import flag_in_query
from gateway.bus.session import SupervisorSession
from protocol import RELEASE
from protocol.messages.system_info import Cpu, GetSystemInfo, Gpu, MachineInfo, Npu, SystemInfo

_GIBI: Final = 1 << 30
_MEBI: Final = 1 << 20
_ABSENT: Final = {"available": False}


def info_body(info: SystemInfo, *, verbose: bool) -> dict[str, Any]:
    """Return the fields of all documents except those of Windows; our own fields are under ``lemonbus``."""
    machine = info.machine
    body: dict[str, Any] = {
        "OS Version": machine.system,
        "Processor": machine.cpu.name,
        "Physical Memory": f"{machine.memory / _GIBI:.1f} GB",
        "devices": devices(machine),
        "recipes": info.recipes,
    }
    if verbose:
        if info.packages is not None:
            body["Python Packages"] = info.packages
        body["lemonbus"] = {"version": RELEASE, "memory_bytes": machine.memory, **machine.more}
    return body


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


class SystemInfoResource:
    """``GET system-info``: the machine."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer; ``verbose=true`` adds the Python packages and other facts that help to find a fault."""
        verbose = flag_in_query(req, "verbose")
        info = self._session.call(req.env, lambda number: GetSystemInfo(number, verbose), SystemInfo)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(info_body(info, verbose=verbose))
