"""Which devices llama.cpp's server will compute on, and with how many layers if it chooses that itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocol.models.devices import Device, is_gpu_number
from protocol.models.memory import HOST, EngineDevice, MemoryEstimate
from protocol.models.recipes import BackendDescriptor, Provision
from workers.backends.llamacpp.flags import FLAGS
from workers.backends.llamacpp.memory.tensor_placement import DeviceShare
from workers.backends.visible_devices import devices_called

FIT_MARGIN: Final = 1 << 30
"""Bytes that the server leaves free on each device when it chooses the layers itself."""
_VENDORS: Final = {Device.NVIDIA_GPU: "nvidia", Device.AMD_GPU: "amd"}
_API_NAMES: Final = {"nvidia": "CUDA", "amd": "ROCm", "intel": "SYCL"}
_VULKAN: Final = "vulkan"


def engine_devices(
    program: BackendDescriptor, chosen: Sequence[str], words: Sequence[str], devices: Sequence[EngineDevice]
) -> list[tuple[EngineDevice, DeviceShare]]:
    """Return the devices with memory of their own that a server uses, each with its share of the layers.

    ``chosen``: the setting ``devices`` of the model; ``words``: the command line; ``devices``: those of the machine. A
    device that uses the host's memory is left out: what it computes on counts there.
    """
    vendors = _vendors(program, devices)
    found = [device for device in devices if device.vendor in vendors]
    if chosen and all(map(is_gpu_number, chosen)):
        # The engine sees only these, and numbers them anew.
        found = devices_called(chosen, found)
    prefix = "Vulkan" if program.name == _VULKAN else _API_NAMES[vendors[0]] if vendors else ""
    named = {f"{prefix}{number}": device for number, device in enumerate(found)}
    wanted = FLAGS.value_of(words, "--device")
    if wanted is not None:
        named = {name: named[name] for name in wanted.split(",") if name in named}
    shares = _shares(FLAGS.value_of(words, "--tensor-split") or "", [device.free for device in named.values()])
    used = [
        (device, DeviceShare(device.place, share, name))
        for (name, device), share in zip(named.items(), shares, strict=True)
        if device.place != HOST and share
    ]
    if FLAGS.value_of(words, "--split-mode") == "none" and used:
        main = FLAGS.value_of(words, "--main-gpu") or "0"
        return [used[min(int(main), len(used) - 1) if main.isdecimal() else 0]]
    return used


def _vendors(program: BackendDescriptor, devices: Sequence[EngineDevice]) -> list[str]:
    """Return the vendors whose devices a program uses. A user's own program is taken for one that uses any GPU."""
    present = [vendor for vendor in _API_NAMES if any(device.vendor == vendor for device in devices)]
    if program.name == _VULKAN:
        return present
    if program.provision is Provision.USER:
        return present[:1]
    return [vendor for kind, vendor in _VENDORS.items() if kind in program.devices]


def _shares(split: str, free: Sequence[int]) -> list[float]:
    """Return each device's share of the layers: as the flag says, else by its free memory."""
    try:
        given = [float(part) for part in split.replace("/", ",").split(",")] if split else []
    except ValueError:
        given = []
    if not any(given):
        return [float(size or 1) for size in free]
    return (given + [0.0] * len(free))[: len(free)]


def with_fitting_layers(
    need: Callable[[Sequence[str]], MemoryEstimate],
    words: Sequence[str],
    devices: Sequence[EngineDevice],
    layers: int,
    context: int,
) -> MemoryEstimate:
    """Return the estimate for the number of layers that a server chooses which is told none: all that fit now.

    ``need`` returns the estimate for a command line; ``layers`` is the most, and ``context`` what counts for it.
    """

    def with_layers(count: int) -> MemoryEstimate:
        return need([*words, "-ngl", str(count)])

    def fits(count: int) -> bool:
        wanted = with_layers(count).need(context)
        return all(wanted.get(device.place, 0) + FIT_MARGIN <= device.free for device in devices)

    least, most = 0, layers
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return with_layers(least)
