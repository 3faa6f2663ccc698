"""Variables and devices of the configuration reach the engine of each recipe, and replace none of lemonbus's own variables."""

from __future__ import annotations

import sys

import pytest

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.models.memory import HOST, EngineDevice
from protocol.models.recipes import ModelSpec
from workers.backends.llamacpp.command_line import device_arguments
from workers.backends.registry import BACKEND_CLASSES, DESCRIPTORS
from workers.backends.visible_devices import device_variables, refuse_missing_devices


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


@pytest.mark.parametrize("recipe", sorted(name for name, each in DESCRIPTORS.items() if not each.elsewhere))
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
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
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


CARDS = [
    EngineDevice("nvidia", "0000:01:00.0", "GPU-11111111-2222"),
    EngineDevice("nvidia", "0000:02:00.0", "GPU-33333333-4444"),
    EngineDevice("amd", "0000:03:00.0"),
]


def spec_with(*devices: str) -> ModelSpec:
    return ModelSpec("m", "o/m", "llamacpp", "system", "llm", "/m", devices=list(devices))


@pytest.mark.parametrize(
    "device", ["0", "1", "CUDA1", "ROCm0", "Vulkan2", "GPU-3333", "GPU-11111111-2222", "none", "RPC0x"]
)
def test_devices_that_the_machine_has(device: str) -> None:
    refuse_missing_devices(spec_with(device), CARDS)


@pytest.mark.parametrize("device", ["2", "7", "CUDA2", "ROCm1", "SYCL0", "Vulkan3"])
def test_a_device_that_the_machine_does_not_have_is_refused_before_the_start(device: str) -> None:
    backend = BACKEND_CLASSES["llamacpp"](spec_with("0", device), Settings(llama_server=sys.executable))
    backend.check()  # the devices are not known
    backend.devices = CARDS
    with pytest.raises(
        LemonbusError, match=f"names {device}, which this machine does not have; there are: nvidia 0000:01:00.0"
    ):
        backend.check()


def test_an_unknown_uuid_is_refused_where_all_have_one() -> None:
    refuse_missing_devices(spec_with("GPU-9999"), CARDS)
    with pytest.raises(LemonbusError, match="names GPU-9999"):
        refuse_missing_devices(spec_with("GPU-9999"), CARDS[:2])


NVIDIA = [EngineDevice("nvidia", "0000:01:00.0", "GPU-a"), EngineDevice("nvidia", "0000:02:00.0", "GPU-b")]
AMD = EngineDevice("amd", "0000:03:00.0")
SHARED = EngineDevice("amd", HOST)


@pytest.mark.parametrize(
    ("named", "devices", "needs"),
    [
        (["0"], NVIDIA, {HOST: 5, "0000:01:00.0": 7}),
        (["1", "0"], NVIDIA, {HOST: 5, "0000:01:00.0": 7, "0000:02:00.0": 7}),
        (["GPU-b"], NVIDIA, {HOST: 5, "0000:02:00.0": 7}),
        (["1"], [AMD, *NVIDIA], {HOST: 5, "0000:02:00.0": 7}),
        (["0"], [AMD], {HOST: 5, "0000:03:00.0": 7}),
        (["0"], [SHARED], {HOST: 12}),
        (["3"], NVIDIA, {HOST: 5}),
        (["0"], [], {HOST: 5}),
        ([], NVIDIA, {HOST: 5}),
    ],
)
def test_what_a_section_says_of_devices_counts_on_those_that_it_names(
    named: list[str], devices: list[EngineDevice], needs: dict[str, int]
) -> None:
    spec = ModelSpec(
        name="m",
        checkpoint="",
        recipe="command",
        backend="command",
        type="llm",
        path="",
        devices=named,
        engine={"command": ["true", "{port}"], "memory": 5, "device_memory": 7},
    )
    backend = BACKEND_CLASSES["command"](spec, Settings())
    backend.devices = devices
    assert backend.memory().need() == needs
    if named == ["3"]:
        with pytest.raises(LemonbusError, match="its setting devices names 3, which this machine does not have"):
            backend.check()
