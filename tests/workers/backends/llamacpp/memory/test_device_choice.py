"""Which devices a server computes on: by program, setting and flags; and how many layers fit if it chooses them itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.models.memory import HOST, EngineDevice, MemoryEstimate, PlaceNeed
from protocol.models.recipes import ModelSpec
from tests.support.models import synthetic_gguf as synthetic
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.llamacpp.descriptor import DESCRIPTOR
from workers.backends.llamacpp.memory.device_choice import FIT_MARGIN, engine_devices, with_fitting_layers
from workers.worker.load_check import check_model

GIB = 1 << 30
H100 = [EngineDevice("nvidia", f"0000:0{number}:00.0", f"GPU-{number}", (number + 1) * 8 * GIB) for number in range(2)]
RADEON = EngineDevice("amd", "0000:03:00.0", "ab", 24 * GIB)
GRAPHICS = EngineDevice("amd", HOST)
ARC = EngineDevice("intel", "0000:04:00.0", "", 12 * GIB)
ALL = [*H100, RADEON, GRAPHICS, ARC]
FIRST, SECOND = (device.place for device in H100)


def used(program: str, words: str = "", chosen: Sequence[str] = (), devices: Sequence[EngineDevice] = ALL) -> list[str]:
    """Return ``place=share`` of each device, the share in GiB if it is free memory."""
    described = next(each for each in DESCRIPTOR.backends if each.name == program)
    found = engine_devices(described, chosen, words.split(), devices)
    return [f"{each.name} {each.place}={each.share / GIB if each.share >= GIB else each.share:g}" for _, each in found]


@pytest.mark.parametrize(
    ("program", "words", "chosen", "devices", "expected"),
    [
        ("cpu", "", [], ALL, []),
        ("cuda", "", [], ALL, [f"CUDA0 {FIRST}=8", f"CUDA1 {SECOND}=16"]),
        ("rocm", "", [], ALL, ["ROCm0 0000:03:00.0=24"]),
        ("vulkan", "", [], [GRAPHICS, ARC], ["Vulkan1 0000:04:00.0=12"]),
        ("system", "", [], ALL, [f"CUDA0 {FIRST}=8", f"CUDA1 {SECOND}=16"]),
        ("system", "", [], [GRAPHICS, RADEON, ARC], ["ROCm1 0000:03:00.0=24"]),
        ("system", "", [], [ARC], ["SYCL0 0000:04:00.0=12"]),
        ("system", "", [], [], []),
        ("cuda", "", ["1"], ALL, [f"CUDA0 {SECOND}=16"]),
        ("cuda", "", ["GPU-1", "0"], ALL, [f"CUDA0 {SECOND}=16", f"CUDA1 {FIRST}=8"]),
        ("cuda", "", ["7"], ALL, []),
        ("cuda", "--device CUDA1", ["CUDA1"], ALL, [f"CUDA1 {SECOND}=16"]),
        ("cuda", "--device none", [], ALL, []),
        ("cuda", "--tensor-split 3,1", [], ALL, [f"CUDA0 {FIRST}=3", f"CUDA1 {SECOND}=1"]),
        ("cuda", "-ts 0,1", [], ALL, [f"CUDA1 {SECOND}=1"]),
        ("cuda", "-ts x", [], ALL, [f"CUDA0 {FIRST}=8", f"CUDA1 {SECOND}=16"]),
        ("cuda", "-sm none", [], ALL, [f"CUDA0 {FIRST}=8"]),
        ("cuda", "-sm none -mg 1", [], ALL, [f"CUDA1 {SECOND}=16"]),
        ("cuda", "", [], [EngineDevice("nvidia", HOST, "GPU-0")], []),
    ],
)
def test_the_devices_of_a_server(
    program: str, words: str, chosen: list[str], devices: list[EngineDevice], expected: list[str]
) -> None:
    assert used(program, words, chosen, devices) == expected


@pytest.mark.parametrize(("free", "layers"), [(0, 0), (FIT_MARGIN, 0), (FIT_MARGIN + 35, 3), (100 * GIB, 9)])
def test_a_server_that_chooses_its_layers_takes_all_that_fit(free: int, layers: int) -> None:
    """Each layer takes 10 bytes of the device; what is left is on the host."""

    def need(words: Sequence[str]) -> MemoryEstimate:
        assert list(words[:1]) == ["-b"]
        count = int(words[-1])
        return MemoryEstimate({"gpu": PlaceNeed(10 * count), HOST: PlaceNeed(10 * (9 - count))}, context=8)

    found = with_fitting_layers(need, ["-b"], [EngineDevice("nvidia", "gpu", free=free)], 9, 8)
    assert found.need() == {"gpu": 10 * layers, HOST: 10 * (9 - layers)}


def checked(tmp_path: Path, devices: list[EngineDevice], **options: int) -> dict[str, int]:
    model = synthetic.llama()
    path = tmp_path / "m.gguf"
    model.write(path)
    spec = ModelSpec("m", "o/m", "llamacpp", "system", "llm", str(path), options={"ctx_size": 2048, **options})
    backend = LlamaCppBackend(spec, Settings(llama_server="/bin/true", cache_dir=str(tmp_path)))
    backend.devices = devices
    return check_model(spec, backend)[0].estimate.need()


def test_the_estimate_of_a_check_is_by_place(tmp_path: Path) -> None:
    large, small = (
        EngineDevice("nvidia", "0000:01:00.0", free=64 * GIB),
        EngineDevice("nvidia", "0000:01:00.0", free=GIB),
    )
    alone = checked(tmp_path, [])
    assert set(alone) == {HOST}
    on_device = checked(tmp_path, [large])
    assert on_device["0000:01:00.0"] > on_device[HOST] > 0
    assert on_device[HOST] < alone[HOST]
    assert checked(tmp_path, [small])[HOST] > on_device[HOST]
    assert checked(tmp_path, [large], gpu_layers=0)[HOST] > on_device[HOST]
