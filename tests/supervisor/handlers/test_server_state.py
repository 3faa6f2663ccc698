"""What health says about a loaded model that nothing was known about before."""

from __future__ import annotations

import pytest

from protocol.models.recipes import ModelSpec
from supervisor.handlers.server_state import with_device


@pytest.mark.parametrize(
    ("device", "on_gpu", "shown"),
    [("cpu", True, "gpu"), ("cpu", False, "cpu"), ("npu", True, "npu"), ("gpu", False, "gpu")],
)
def test_the_device_is_the_one_that_the_driver_shows(device: str, on_gpu: bool, shown: str) -> None:
    spec = ModelSpec("m", "o/m", "llamacpp", "system", "llm", "/m", device=device)
    assert with_device(spec, on_gpu=on_gpu).device == shown
