"""Which GPUs an engine sees: the variables of its drivers, and the refusal of GPUs that this machine does not have. Pure.

Without the refusal, the driver would hide all GPUs from the engine, which would compute on the processor without a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from protocol.failures import Code, Failure
from protocol.models.devices import VISIBLE_DEVICES, is_gpu_number
from protocol.models.memory import EngineDevice
from protocol.models.recipes import ModelSpec

GPU_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA's numbers of GPUs are then those of the driver's own tools. By default, the fastest one is the first."""
_NAME: Final = re.compile(r"(CUDA|ROCm|SYCL|Vulkan|)(\d{1,3})")
_VENDORS: Final = {"CUDA": "nvidia", "ROCm": "amd", "SYCL": "intel"}
"""The first part of llama.cpp's name of a device → its vendor. Numbers alone count the devices of one vendor."""
_UUID: Final = "GPU-"


def device_variables(devices: Sequence[str]) -> dict[str, str]:
    """Return the variables that show an engine only the GPUs with these numbers or UUIDs; none for other names.

    Each driver reads its own variable; numbers count only the devices of that driver.
    """
    if not devices or not all(map(is_gpu_number, devices)):
        return {}
    return {**GPU_ORDER, **dict.fromkeys(VISIBLE_DEVICES, ",".join(devices))}


def devices_called(names: Sequence[str], devices: Sequence[EngineDevice]) -> list[EngineDevice]:
    """Return the devices with these numbers or UUIDs. ``devices``: those that are numbered together, in their order."""
    return [
        device
        for name in names
        for number, device in enumerate(devices)
        if (int(name) == number if name.isdecimal() else device.uuid.startswith(name))
    ]


def refuse_missing_devices(spec: ModelSpec, devices: Sequence[EngineDevice]) -> None:
    """Raise ``load_failed`` if the setting ``devices`` of a model names one that is not in ``devices``; nothing is checked without any."""
    missing = [name for name in spec.devices if devices and not _is_there(name, devices)]
    if missing:
        known = ", ".join(f"{device.vendor} {device.place}" for device in devices)
        what = f"its setting devices names {', '.join(missing)}, which this machine does not have; there are: {known}"
        raise Failure(Code.LOAD_FAILED, f"{spec.name} cannot be loaded: {what}", model=spec.name).raised()


def _is_there(name: str, devices: Sequence[EngineDevice]) -> bool:
    if name.startswith(_UUID):
        return any(device.uuid.startswith(name) or not device.uuid for device in devices)
    found = _NAME.fullmatch(name)
    if found is None:
        return True  # "none", or a name that only the engine knows
    counts = Counter(device.vendor for device in devices)
    kind = found[1]
    count = len(devices) if kind == "Vulkan" else counts[_VENDORS[kind]] if kind else max(counts.values())
    return int(found[2]) < count
