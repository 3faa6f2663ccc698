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


class Names(NamedTuple):
    """One device's names."""

    shown: str
    """In health and in lists of models."""
    asked: tuple[str, ...]
    """In load requests."""
    said: str
    """In a sentence: "Requires …"."""


NAMES: Final[dict[str, Names]] = {
    Device.CPU: Names("cpu", ("cpu",), "a processor"),
    Device.AMD_GPU: Names("gpu", ("gpu", "igpu", "dgpu"), "an AMD GPU"),
    Device.NVIDIA_GPU: Names("gpu", ("gpu", "igpu", "dgpu"), "an NVIDIA GPU"),
    Device.APPLE_GPU: Names("gpu", ("gpu", "igpu", "dgpu"), "an Apple GPU"),
    Device.AMD_NPU: Names("npu", ("npu",), "an AMD NPU"),
}
"""The one table."""

HYBRID: Final = "hybrid"
"""What the preview asks for unless it asks for something else: whatever the recipe runs on."""
ASKED: Final = (HYBRID, *dict.fromkeys(word for names in NAMES.values() for word in names.asked))
"""Every word that a load request may use."""

ONNX: Final = {HYBRID: "oga-hybrid", "cpu": "oga-cpu", "npu": "oga-npu"}
"""Word of a request → recipe of an ONNX model that nobody registered; hybrid for any other word."""


def shown(devices: Iterable[str]) -> str:
    """Return the words of health with spaces between, in this order.

    What can compute on something better than a processor uses that alone as a makeshift, so it does not count.
    """
    words = list(dict.fromkeys(NAMES[device].shown for device in devices))
    return " ".join([word for word in words if word != "cpu"] or words)


def meant(asked: str) -> set[str]:
    """Return the devices that a word of a load request means, whatever its case; none for hybrid and for no word."""
    return {device for device, names in NAMES.items() if asked.lower() in names.asked}
