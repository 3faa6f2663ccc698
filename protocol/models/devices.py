"""What models can be computed on, and its names: system info, health, load requests and sentences each have their own."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple


class Device(enum.StrEnum):
    """A kind of device, in the words of system info and of descriptors."""

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
    said: str
    """In a sentence: "Requires …"."""


DEVICE_NAMES: Final[dict[str, DeviceNames]] = {
    Device.CPU: DeviceNames("cpu", ("cpu",), "a processor"),
    Device.AMD_GPU: DeviceNames("gpu", ("gpu", "igpu", "dgpu"), "an AMD GPU"),
    Device.NVIDIA_GPU: DeviceNames("gpu", ("gpu", "igpu", "dgpu"), "an NVIDIA GPU"),
    Device.APPLE_GPU: DeviceNames("gpu", ("gpu", "igpu", "dgpu"), "an Apple GPU"),
    Device.AMD_NPU: DeviceNames("npu", ("npu",), "an AMD NPU"),
}
"""The one table."""

HYBRID: Final = "hybrid"
"""What the preview asks for unless it asks for something else: whatever the recipe runs on."""
REQUEST_DEVICE_WORDS: Final = (HYBRID, *dict.fromkeys(word for names in DEVICE_NAMES.values() for word in names.asked))
"""Every word that a load request may use."""


def health_words(devices: Iterable[str]) -> str:
    """Return the words of health with spaces between, in this order.

    What can compute on something better than a processor uses that alone as a makeshift, so it does not count.
    """
    words = list(dict.fromkeys(DEVICE_NAMES[device].shown for device in devices))
    return " ".join([word for word in words if word != "cpu"] or words)


def devices_meant_by(asked: str) -> set[str]:
    """Return the devices that a word of a load request means, whatever its case; none for hybrid and for no word."""
    return {device for device, names in DEVICE_NAMES.items() if asked.lower() in names.asked}
