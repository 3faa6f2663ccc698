"""Which recipe and backend a load request means."""

from __future__ import annotations

import pytest

from protocol.failures import LemonbusError
from supervisor.handlers.models.loading import device_option, guess_recipe
from workers.backends.registry import DESCRIPTORS


@pytest.mark.parametrize(
    ("checkpoint", "device", "recipe"),
    [
        ("unsloth/Qwen3-0.6B-GGUF:Q4_0", "", "llamacpp"),
        ("owner/anything", "hybrid", "llamacpp"),
        ("amd/Llama-3.2-1B-Instruct-awq-g128-int4-asym-fp16-onnx-hybrid", "", "oga-hybrid"),
        ("amd/Llama-3.2-1B-Instruct-onnx", "hybrid", "oga-hybrid"),
        ("amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx", "cpu", "oga-cpu"),
        ("amd/Some-ONNX", "npu", "oga-npu"),
    ],
)
def test_an_unregistered_checkpoint_tells_its_recipe(checkpoint: str, device: str, recipe: str) -> None:
    assert guess_recipe(checkpoint, device) == recipe
    assert recipe in DESCRIPTORS


def test_a_device_chooses_a_backend_where_there_is_a_choice() -> None:
    llamacpp = DESCRIPTORS["llamacpp"]
    for device in ("", "hybrid", "cpu"):
        assert device_option(llamacpp, device, {}) == {}
    for device in ("gpu", "igpu", "dgpu"):
        assert device_option(llamacpp, device, {}) == {"llamacpp_backend": "vulkan"}
        assert device_option(llamacpp, device, {"llamacpp_backend": "rocm"}) == {}


def test_models_made_for_an_npu_run_on_the_processor_where_that_is_asked_for() -> None:
    assert device_option(DESCRIPTORS["oga-hybrid"], "cpu", {}) == {"oga-hybrid_backend": "cpu"}
    assert device_option(DESCRIPTORS["oga-npu"], "npu", {}) == {"oga-npu_backend": "npu"}
    assert device_option(DESCRIPTORS["oga-cpu"], "cpu", {}) == {}


def test_a_device_that_no_backend_of_a_recipe_runs_on_is_refused() -> None:
    with pytest.raises(LemonbusError) as raised:
        device_option(DESCRIPTORS["llamacpp"], "npu", {})
    assert raised.value.failure.param == "device"
