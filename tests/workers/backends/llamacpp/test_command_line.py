"""The batch of prompt tokens: large where the processor is fast enough to cancel within a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec, OptionValue
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.llamacpp.command_line import prompt_batch_tokens, server_arguments
from workers.backends.llamacpp.descriptor import DESCRIPTOR

MB = 10**6


@pytest.mark.parametrize(
    ("model_bytes", "threads", "tokens"),
    [
        (98 * MB, 2, 256),
        (98 * MB, 1, 128),
        (98 * MB, 16, 512),
        (1, 1, 512),
        (1000 * MB, 2, 64),
        (1000 * MB, 16, 128),
        (40_000 * MB, 2, 64),
        (98 * MB, 0, 128),
        (0, 8, 64),
    ],
)
def test_the_batch_fits_the_model_and_the_processor(model_bytes: int, threads: int, tokens: int) -> None:
    assert prompt_batch_tokens(model_bytes, threads) == tokens


@pytest.mark.parametrize(("size", "threads", "batch"), [(98 * MB, 2, "256"), (4000 * MB, 2, "64")])
def test_the_engine_is_started_with_it(tmp_path: Path, size: int, threads: int, batch: str) -> None:
    model = tmp_path / "m.gguf"
    with model.open("wb") as file:
        file.truncate(size)  # a sparse file
    spec = ModelSpec("m", "m", "llamacpp", "cpu", "llm", str(model), options={"threads": threads})
    command = LlamaCppBackend(spec, Settings(cache_dir=str(tmp_path))).command(1)
    assert command[command.index("-b") + 1] == batch


@pytest.mark.parametrize(
    ("backend", "node", "devices", "options", "args", "batch"),
    [
        ("system", "nvidia0", [], {}, "", False),
        ("system", "dri/renderD128", ["Vulkan0"], {}, "", False),
        ("system", "nvidiactl", [], {}, "", True),
        ("system", "nvidia0", ["none"], {}, "", True),
        ("system", "nvidia0", [], {}, "-dev none -ts 1,2", True),
        ("system", "nvidia0", ["none"], {}, "--device none --device CUDA0", False),
        ("system", "nvidia0", [], {"gpu_layers": 0}, "", True),
        ("cpu", "nvidia0", [], {}, "", True),
    ],
)
def test_a_program_that_may_compute_on_a_gpu_gets_its_own_batch(
    tmp_path: Path, backend: str, node: str, devices: list[str], options: dict[str, OptionValue], args: str, batch: bool
) -> None:
    (tmp_path / node).parent.mkdir(exist_ok=True)
    (tmp_path / node).touch()
    spec = ModelSpec("m", "m", "llamacpp", backend, "llm", "/m.gguf", options=options, devices=devices)
    program = next(each for each in DESCRIPTOR.backends if each.name == backend)
    layers = int(options.get("gpu_layers", 0))
    words = server_arguments(
        spec,
        program,
        args.split(),
        port=1,
        alias="m",
        slots=1,
        context=0,
        gpu_layers=layers,
        threads=1,
        prompt_cache=256,
        saved=tmp_path,
        quiet=False,
        dev=tmp_path,
    )
    assert ("-b" in words) == batch
