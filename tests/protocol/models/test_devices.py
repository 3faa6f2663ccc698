"""The names of devices: one table for system info, health, load requests and sentences."""

from __future__ import annotations

import pytest

from protocol.models.devices import (
    DEVICE_NAMES,
    HYBRID,
    REQUEST_DEVICE_WORDS,
    Device,
    devices_for_name,
    health_words,
)
from workers.backends.registry import DESCRIPTORS


def test_every_device_has_its_names() -> None:
    assert list(DEVICE_NAMES) == list(Device)
    assert {names.shown for names in DEVICE_NAMES.values()} == {"cpu", "gpu", "npu"}
    assert REQUEST_DEVICE_WORDS == (HYBRID, "cpu", "gpu", "igpu", "dgpu", "npu"), (
        "the preview's and the words of every day"
    )


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        ("cpu", {Device.CPU}),
        ("gpu", {Device.AMD_GPU, Device.NVIDIA_GPU, Device.APPLE_GPU}),
        ("iGPU", {Device.AMD_GPU, Device.NVIDIA_GPU, Device.APPLE_GPU}),
        ("NPU", {Device.AMD_NPU}),
        (HYBRID, set()),
        ("", set()),
        ("tpu", set()),
    ],
)
def test_what_a_request_means(asked: str, devices: set[Device]) -> None:
    assert devices_for_name(asked) == devices


@pytest.mark.parametrize(
    ("recipe", "backend", "device"),
    [
        ("llamacpp", "cpu", "cpu"),
        ("llamacpp", "system", "cpu"),
        ("llamacpp", "vulkan", "gpu"),
        ("llamacpp", "rocm", "gpu"),
        ("llamacpp", "metal", "gpu"),
        ("whispercpp", "npu", "npu"),
        ("flm", "npu", "npu"),
        ("oga-hybrid", "hybrid", "gpu npu"),
        ("oga-hybrid", "cpu", "cpu"),
        ("ryzenai-llm", "hybrid", "gpu npu"),
        ("ryzenai-llm", "npu", "npu"),
        ("oga-cpu", "cpu", "cpu"),
    ],
)
def test_what_health_shows_of_a_backend(recipe: str, backend: str, device: str) -> None:
    found = DESCRIPTORS[recipe].backend(backend)
    assert found is not None
    assert found.device == device


def test_every_backend_is_on_devices_that_have_names() -> None:
    for descriptor in DESCRIPTORS.values():
        for backend in descriptor.backends:
            assert {*backend.devices, *backend.beside} <= set(DEVICE_NAMES)
            assert health_words(backend.devices)


def test_recipes_are_hinted_at_with_words_of_requests() -> None:
    for descriptor in DESCRIPTORS.values():
        assert set(descriptor.hint_devices) <= set(REQUEST_DEVICE_WORDS)
