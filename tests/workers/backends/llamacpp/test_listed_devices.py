"""The kinds of devices in what a llama-server prints about them."""

from __future__ import annotations

import pytest

from workers.backends.llamacpp.listed_devices import listed_devices


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (["  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80552 MiB free)"], ["cpu", "nvidia_gpu"]),
        (["  CUDA0: NVIDIA A (1 MiB, 1 MiB free)", "  CUDA1: NVIDIA B (1 MiB, 1 MiB free)"], ["cpu", "nvidia_gpu"]),
        (["  ROCm0: AMD Radeon Pro W7900 (46064 MiB, 45000 MiB free)"], ["cpu", "amd_gpu"]),
        (["  Vulkan0: AMD Radeon 890M (RADV) (32000 MiB, 31000 MiB free)"], ["cpu", "amd_gpu"]),
        (
            ["  Vulkan0: NVIDIA A (1 MiB, 1 MiB free)", "  Vulkan1: AMD B (1 MiB, 1 MiB free)"],
            ["cpu", "nvidia_gpu", "amd_gpu"],
        ),
        (["  SYCL0: Intel Arc A770 (16000 MiB, 15000 MiB free)"], ["cpu"]),
        ([], ["cpu"]),
        (["usage: llama-server", "error: invalid argument: --list-devices"], ["cpu"]),
    ],
)
def test_the_kinds_of_devices(lines: list[str], kinds: list[str]) -> None:
    assert listed_devices("\n".join(["Available devices:", *lines, ""])) == kinds
