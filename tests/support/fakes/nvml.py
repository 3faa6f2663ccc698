"""A stand-in for NVIDIA's library below ``pynvml``: its functions fill the library's own structures, as the driver would.

The numbers of :data:`H100` are those that driver 580.159.04 gave for one.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

MIB = 1 << 20
INSUFFICIENT_SIZE = 7
NOT_SUPPORTED = 3
NOT_FOUND = 6
LOST = 15


@dataclasses.dataclass
class FakeGpu:
    """A GPU, or a part of one."""

    name: str
    uuid: str
    address: tuple[int, int, int] = (0, 0, 0)
    total: int = 0
    used: int = 0
    reserved: int = 0
    percent: int | None = None
    compute: dict[int, int | None] = dataclasses.field(default_factory=dict)
    graphics: dict[int, int | None] = dataclasses.field(default_factory=dict)
    parts: list[FakeGpu | None] | None = None
    """None: it cannot be divided; an entry None: this place for a part is empty."""
    error: int = 0
    """What every question about it is answered with."""


def h100(**changes: Any) -> FakeGpu:
    """Return a GPU that an engine with 1846 MiB uses."""
    gpu = FakeGpu(
        name="NVIDIA H100 80GB HBM3",
        uuid="GPU-0d8f1364-0d58-0170-c995-b1c52bc514a8",
        address=(0, 0, 6),
        total=85520809984,
        used=1854 * MIB,
        reserved=503316480,
        percent=37,
        compute={4912: 1846 * MIB},
        parts=[],
    )
    return dataclasses.replace(gpu, **changes)


class FakeNvml:
    """The library. Functions that are not here are those that the driver lacks."""

    def __init__(self, gpus: list[FakeGpu], *, init_error: int = 0, lacks: tuple[str, ...] = ()) -> None:
        self.gpus, self.init_error, self.lacks = gpus, init_error, lacks
        self.count_error = 0
        self._handles: list[FakeGpu] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        own_name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("nvml")).lower()
        function = type(self).__dict__.get(f"_{own_name}")
        if function is None or name in self.lacks:
            raise AttributeError(name)
        return lambda *arguments: int(function(self, *arguments))

    def _give(self, gpu: FakeGpu, handle: Any) -> int:
        self._handles.append(gpu)
        ctypes.c_void_p.from_buffer(handle._obj).value = len(self._handles)
        return gpu.error

    def _gpu(self, handle: Any) -> FakeGpu:
        return self._handles[(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]

    def _init_with_flags(self, _flags: Any) -> int:
        return self.init_error

    def _device_get_count_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return self.count_error

    def _device_get_handle_by_index_v2(self, index: Any, handle: Any) -> int:
        return self._give(self.gpus[index.value], handle)

    def _device_get_pci_info_v3(self, handle: Any, pci: Any) -> int:
        pci._obj.domain, pci._obj.bus, pci._obj.device = self._gpu(handle).address
        return 0

    def _device_get_mig_mode(self, handle: Any, current: Any, pending: Any) -> int:
        parts = self._gpu(handle).parts
        current._obj.value = pending._obj.value = int(bool(parts))
        return NOT_SUPPORTED if parts is None else 0

    def _device_get_max_mig_device_count(self, handle: Any, count: Any) -> int:
        count._obj.value = len(self._gpu(handle).parts or [])
        return 0

    def _device_get_mig_device_handle_by_index(self, handle: Any, index: Any, part: Any) -> int:
        found = (self._gpu(handle).parts or [])[index if isinstance(index, int) else index.value]
        return NOT_FOUND if found is None else self._give(found, part)

    def _device_get_name(self, handle: Any, buffer: Any, _size: Any) -> int:
        buffer.value = self._gpu(handle).name.encode()
        return 0

    def _device_get_uuid(self, handle: Any, buffer: Any, _size: Any) -> int:
        buffer.value = self._gpu(handle).uuid.encode()
        return 0

    def _device_get_memory_info(self, handle: Any, memory: Any) -> int:
        gpu = self._gpu(handle)
        memory._obj.total, memory._obj.used = gpu.total, gpu.used + gpu.reserved
        memory._obj.free = gpu.total - gpu.used - gpu.reserved
        return 0 if gpu.total else NOT_SUPPORTED

    def _device_get_memory_info_v2(self, handle: Any, memory: Any) -> int:
        gpu = self._gpu(handle)
        result = self._device_get_memory_info(handle, memory)
        memory._obj.reserved, memory._obj.used = gpu.reserved, gpu.used
        return result

    def _device_get_utilization_rates(self, handle: Any, rates: Any) -> int:
        percent = self._gpu(handle).percent
        rates._obj.gpu = percent or 0
        return NOT_SUPPORTED if percent is None else 0

    def _device_get_compute_running_processes_v3(self, handle: Any, count: Any, processes: Any) -> int:
        return _list_processes(self._gpu(handle).compute, count, processes)

    def _device_get_graphics_running_processes_v3(self, handle: Any, count: Any, processes: Any) -> int:
        return _list_processes(self._gpu(handle).graphics, count, processes)


def _list_processes(running: dict[int, int | None], count: Any, processes: Any) -> int:
    count._obj.value = len(running)
    if processes is None:
        return INSUFFICIENT_SIZE if running else 0
    for entry, (pid, size) in zip(processes, running.items(), strict=False):
        entry.pid = pid
        entry.usedGpuMemory = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value if size is None else size
    return 0


def install(monkeypatch: pytest.MonkeyPatch, library: FakeNvml) -> FakeNvml:
    """Let ``pynvml`` use this library."""
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return library
