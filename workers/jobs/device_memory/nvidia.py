"""The memory of NVIDIA's GPUs by NVML, the library of the driver (``libnvidia-ml.so.1``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from protocol.messages.devices import DeviceReading
from protocol.models.memory import HOST
from protocol.runtime.deferred_module import DeferredModule

if TYPE_CHECKING:
    import pynvml
else:
    pynvml = DeferredModule("pynvml")  # half a megabyte of Python that only machines with NVIDIA's driver need


class NvidiaError(Exception):
    """The library shows nothing at all; the message is a sentence."""


def start() -> None:
    """Load the library and connect it to the driver. Raises :class:`NvidiaError`."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        raise NvidiaError(f"The memory of NVIDIA GPUs is unknown: libnvidia-ml.so.1: {problem}") from None


def read() -> list[DeviceReading]:
    """Read every GPU, or the parts that one is divided into (MIG). Raises :class:`NvidiaError`."""
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as problem:
        raise NvidiaError(f"The memory of NVIDIA GPUs is unknown: {problem}") from None
    return [reading for index in range(count) for reading in _read_gpu(index)]


def _read_gpu(index: int) -> list[DeviceReading]:
    address = f"GPU {index}"
    try:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        pci = pynvml.nvmlDeviceGetPciInfo(gpu)
        address = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        parts = list(_parts(gpu))
        if parts:
            return [_read(part, address, pynvml.nvmlDeviceGetUUID(part)) for part in parts]
        return [_read(gpu, address, address)]
    except pynvml.NVMLError as problem:
        return [DeviceReading("nvidia", address, address, problem=f"The memory of {address} cannot be read: {problem}")]


def _parts(gpu: Any) -> Iterator[Any]:
    """Yield the parts of a divided GPU."""
    with suppress(pynvml.NVMLError):  # a GPU that cannot be divided
        if pynvml.nvmlDeviceGetMigMode(gpu)[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(pynvml.NVMLError_NotFound):
                    yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)


def _read(device: Any, address: str, place: str) -> DeviceReading:
    name, uuid = pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device)
    try:
        total, free = _memory(device)
    except pynvml.NVMLError_NotSupported:  # it uses the machine's own memory, as in a Jetson or a DGX Spark
        place, total, free = HOST, 0, 0
    return DeviceReading(
        vendor="nvidia",
        address=address,
        place=place,
        uuid=uuid,
        name=name,
        total=total,
        free=free,
        used_percent=_used_percent(device),
        processes=_processes(device),
    )


def _memory(device: Any) -> tuple[int, int]:
    """Return the memory without what the driver keeps for itself, and how much of it is free."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError_FunctionNotFound:  # before driver 510
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        return memory.total, memory.free
    return memory.total - memory.reserved, memory.free


def _used_percent(device: Any) -> float | None:
    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
    except pynvml.NVMLError_NotSupported:  # a part of a GPU
        return None


def _processes(device: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for running in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
        with suppress(pynvml.NVMLError):
            for process in running(device):
                found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
    return found
