"""Variables and devices of the configuration reach the engine of each recipe, and replace none of lemonbus's own variables."""

from __future__ import annotations

import sys

import pytest

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from workers.backends.base import device_variables
from workers.backends.llamacpp.command_line import device_arguments
from workers.backends.registry import BACKEND_CLASSES, DESCRIPTORS


@pytest.mark.parametrize(
    ("devices", "value", "words"),
    [
        ([], None, []),
        (["0"], "0", []),
        (["1", "GPU-5ebe9fe1-ac33"], "1,GPU-5ebe9fe1-ac33", []),
        (["CUDA0", "Vulkan1"], None, ["--device", "CUDA0,Vulkan1"]),
        (["none"], None, ["--device", "none"]),
    ],
)
def test_devices_are_variables_or_a_flag(devices: list[str], value: str | None, words: list[str]) -> None:
    found = device_variables(devices)
    assert {found.get(name) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")} == {value}
    assert device_arguments("--device", devices) == words
    assert device_arguments("", devices) == []


@pytest.mark.parametrize("recipe", sorted(DESCRIPTORS))
def test_an_engine_gets_the_variables_and_devices_of_the_configuration(recipe: str) -> None:
    descriptor = DESCRIPTORS[recipe]
    spec = ModelSpec(
        name="m",
        checkpoint="flm:m" if descriptor.checkpoint_scheme else "o/m",
        recipe=recipe,
        backend=descriptor.backends[0].name,
        type=descriptor.model_type,
        path="/m",
        env={"OMP_NUM_THREADS": "3", "GOMP_SPINCOUNT": "7"},
        devices=["1"],
    )
    backend = BACKEND_CLASSES[recipe](spec, Settings())
    environment = backend.environment({"CUDA_VISIBLE_DEVICES": "0", "KEPT": "yes", "OMP_NUM_THREADS": "9"})
    assert environment["CUDA_VISIBLE_DEVICES"] == environment["HIP_VISIBLE_DEVICES"] == "1"
    assert (environment["OMP_NUM_THREADS"], environment["GOMP_SPINCOUNT"], environment["KEPT"]) == ("3", "7", "yes")


@pytest.mark.parametrize(("backend", "named"), [("cpu", False), ("system", True)])
def test_only_a_llama_server_that_may_know_devices_is_told_their_names(backend: str, named: bool) -> None:
    spec = ModelSpec("m", "o/m", "llamacpp", backend, "llm", "/m", devices=["none"])
    command = BACKEND_CLASSES["llamacpp"](spec, Settings(llama_server=sys.executable)).command(1)
    assert ("--device" in command) is named


def test_what_the_engine_reads_as_options_is_left_out() -> None:
    env = {"LLAMA_API_KEY": "mine", "LLAMA_ARG_PORT": "1", "llama_arg_host": "0.0.0.0"}
    spec = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/m", env=env)
    backend = BACKEND_CLASSES["llamacpp"](spec, Settings())
    environment = backend.environment({})
    assert environment["LLAMA_API_KEY"] == backend.key
    assert not {"LLAMA_ARG_PORT", "llama_arg_host"} & set(environment)
