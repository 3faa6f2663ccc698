"""The kinds of devices, and the names of each in system info, health, load requests, settings and messages."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final, NamedTuple


class Device(enum.StrEnum):
    """A kind of device, as system info and descriptors name it."""

    CPU = "cpu"
    AMD_GPU = "amd_gpu"
    NVIDIA_GPU = "nvidia_gpu"
    APPLE_GPU = "apple_gpu"
    AMD_NPU = "amd_npu"


class DeviceNames(NamedTuple):
    """One device's names."""

    shown: str
    """In health and in lists of models."""
    asked: tuple[str, ...]
    """In load requests."""
    phrase: str
    """In a sentence: "Requires …"."""


DEVICE_NAMES: Final[dict[str, DeviceNames]] = {
    Device.CPU: DeviceNames("cpu", ("cpu",), "a processor"),
    Device.AMD_GPU: DeviceNames("gpu", ("gpu", "igpu", "dgpu"), "an AMD GPU"),
    Device.NVIDIA_GPU: DeviceNames("gpu", ("gpu", "igpu", "dgpu"), "an NVIDIA GPU"),
    Device.APPLE_GPU: DeviceNames("gpu", ("gpu", "igpu", "dgpu"), "an Apple GPU"),
    Device.AMD_NPU: DeviceNames("npu", ("npu",), "an AMD NPU"),
}
"""Device → its names."""

GPUS: Final = frozenset({Device.AMD_GPU, Device.NVIDIA_GPU, Device.APPLE_GPU})
HYBRID: Final = "hybrid"
"""What ``device`` in a load request of the preview means if it names none: whatever the recipe runs on."""
REQUEST_DEVICE_WORDS: Final = (HYBRID, *dict.fromkeys(word for names in DEVICE_NAMES.values() for word in names.asked))
"""Every word that a load request may use."""
VISIBLE_DEVICES: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
"""Environment variables of the vendors' drivers, which the setting ``devices`` sets."""
_GPU: Final = re.compile(r"\d{1,3}|(GPU|MIG)-[A-Za-z0-9/-]+")


def is_gpu_number(device: str) -> bool:
    """Return whether the setting ``devices`` names a device by number or UUID, not by llama.cpp's name."""
    return bool(_GPU.fullmatch(device))


def health_words(devices: Iterable[str]) -> str:
    """Return the names of these devices as health shows them, in this order, separated by spaces.

    A backend with a better device uses the processor only as a fallback, so ``cpu`` is left out then.
    """
    words = list(dict.fromkeys(DEVICE_NAMES[device].shown for device in devices))
    return " ".join([word for word in words if word != "cpu"] or words)


def devices_for_name(asked: str) -> set[str]:
    """Return the devices that ``device`` of a load request means, in any case; none for ``hybrid`` and an empty text."""
    return {device for device, names in DEVICE_NAMES.items() if asked.lower() in names.asked}
