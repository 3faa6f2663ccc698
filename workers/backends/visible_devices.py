"""The devices that the configuration gives to an engine, as variables of the vendors' drivers and as llama.cpp's flag.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.models.devices import VISIBLE_DEVICES, is_gpu_number


def device_variables(devices: Sequence[str]) -> dict[str, str]:
    """Return the variables that show an engine only the GPUs with these numbers or UUIDs; none for other names.

    Each driver reads its own variable; numbers count only the devices of that driver.
    """
    if not devices or not all(map(is_gpu_number, devices)):
        return {}
    return dict.fromkeys(VISIBLE_DEVICES, ",".join(devices))


def device_arguments(flag: str, devices: Sequence[str]) -> list[str]:
    """Return the arguments that name devices in the engine's own words; none for numbers, which become variables."""
    if not flag or not devices or all(map(is_gpu_number, devices)):
        return []
    return [flag, ",".join(devices)]
