"""What ``llama-server --list-devices`` prints: the devices that a program was built for and finds. Pure."""

from __future__ import annotations

import re
from typing import Final

from protocol.models.devices import Device

ARGUMENT: Final = "--list-devices"
_LINE: Final = re.compile(r"^ +([A-Za-z]+)\d+: (.+) \(\d+ MiB, \d+ MiB free\)\s*$", re.MULTILINE)
_KINDS: Final = {"CUDA": Device.NVIDIA_GPU, "ROCm": Device.AMD_GPU, "Metal": Device.APPLE_GPU, "MTL": Device.APPLE_GPU}
_MAKERS: Final = {
    "NVIDIA": Device.NVIDIA_GPU,
    "AMD": Device.AMD_GPU,
    "Radeon": Device.AMD_GPU,
    "Apple": Device.APPLE_GPU,
}
"""Words in the names of devices, for the interfaces that know several makers (Vulkan)."""


def listed_devices(output: str) -> list[str]:
    """Return the kinds of devices in the output, each once; the processor, which is not listed, is the first."""
    found: list[str] = [Device.CPU]
    for interface, name in _LINE.findall(output):
        kind = _KINDS.get(interface) or next((kind for word, kind in _MAKERS.items() if word in name), None)
        if kind is not None and kind not in found:
            found.append(kind)
    return [str(kind) for kind in found]
