"""Ollama's store: what becomes of its models, and which stores, manifests and blobs are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.config.import_plan import ImportPlan
from protocol.failures import LemonbusError
from supervisor.imports import checked_plan, ollama, ollama_store
from tests.supervisor.imports.plans import left_out
from tests.support.models.tiny_models import adapters, tiny_models
from tests.support.ollama_store import OllamaStore

CHAT = tiny_models() / "models" / "tiny-chat.gguf"
TALE = tiny_models() / "models" / "tiny-tale.gguf"
PROJECTOR = tiny_models() / "models" / "tiny-vision" / "mmproj-tiny.gguf"
MODEL = "application/vnd.ollama.image.model"


@pytest.fixture
def store(tmp_path: Path) -> OllamaStore:
    return OllamaStore(tmp_path / "models")


def planned(store: OllamaStore) -> ImportPlan:
    found = ollama.plan(store.folder, ollama_store.read_store(store.folder))
    checked_plan.remove_refused(found)
    return found


def path_of(store: OllamaStore, layer: dict[str, Any]) -> str:
    return str(store.blobs / layer["digest"].replace(":", "-"))


def test_a_model_is_a_section_with_its_blob_and_its_parameters(store: OllamaStore) -> None:
    params = {"num_ctx": 2048, "num_thread": 2, "temperature": 0.5, "stop": ["a", "b"], "num_predict": 9, "top_k": 3}
    more: dict[str, bytes | Path] = {
        "system": b"Be brief.",
        "license": b"\n  MIT License \nmore",
        "template": b"{{ .Prompt }}",
    }
    layers = store.add("llama3.2:1b", CHAT, params=params, more=more)
    found = planned(store)
    assert found.models == {
        "llama3.2:1b": {
            "path": path_of(store, layers[0]),
            "options": {"ctx_size": 2048, "threads": 2},
            "request_defaults": {"temperature": 0.5, "stop": ["a", "b"], "max_tokens": 9, "top_k": 3},
            "system_prompt": "Be brief.",
        }
    }
    assert found.comments == {"llama3.2:1b": "llama3.2:1b of Ollama's store; licence: MIT License"}
    assert list(left_out(found, "llama3.2:1b")) == ["template"]


@pytest.mark.parametrize(
    ("host", "name", "here"),
    [
        ("registry.ollama.ai/library", "gemma:latest", "gemma"),
        ("registry.ollama.ai/library", "gemma:2b-q4_K_M", "gemma:2b-q4_K_M"),
        ("registry.ollama.ai/me", "gemma:2b", "me/gemma:2b"),
        ("hf.co/owner", "Gemma-GGUF:Q4_K_M", "hf.co/owner/Gemma-GGUF:Q4_K_M"),
    ],
)
@pytest.mark.parametrize("manifests", ["manifests", "manifests-v2"])
def test_names_are_those_that_ollama_shows(store: OllamaStore, host: str, name: str, here: str, manifests: str) -> None:
    store.add(name, CHAT, host=host)
    (store.folder / "manifests").rename(store.folder / manifests)
    assert list(planned(store).models) == [here]


def test_tags_of_the_same_model_are_one_model_with_several_names(store: OllamaStore) -> None:
    for name in ("a:1b", "a", "a:other"):
        store.add(name, CHAT, params={"seed": 1} if name == "a:other" else None)
    found = planned(store)
    assert {name: section.get("aliases") for name, section in found.models.items()} == {"a": ["a:1b"], "a:other": None}


def test_projectors_and_adapters_stay_where_they_are(store: OllamaStore) -> None:
    layers = store.add("v", CHAT, more={"projector": PROJECTOR, "adapter": adapters() / "tiny-lora.gguf"})
    section = planned(store).models["v"]
    assert section["mmproj"] == path_of(store, layers[1])
    assert section["args"] == f"--lora {path_of(store, layers[2])}"


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"num_gpu": -1}, "num_gpu -1"),
        ({"num_ctx": "x"}, "num_ctx x"),
        ({"num_predict": -1}, "num_predict -1"),
        ({"f16_kv": True}, "the parameter f16_kv"),
        ({"temperature": "hot"}, "request_defaults.temperature = hot"),
        ({"num_ctx": 2**40}, "options.ctx_size = 1099511627776"),
    ],
)
def test_a_parameter_that_cannot_be_carried_is_named(store: OllamaStore, params: dict[str, Any], what: str) -> None:
    store.add("a", CHAT, params={**params, "seed": 1})
    found = planned(store)
    assert list(left_out(found, "a")) == [what]
    assert found.models["a"]["request_defaults"] == {"seed": 1}
    assert "options" not in found.models["a"]


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        ([], "it has no weights here: Ollama runs it elsewhere"),
        (["tensor"], "its weights are safetensors of Ollama's own engine, not a GGUF file"),
        (["model", "model2"], "its weights are in 2 files, which llama.cpp can only find by their names"),
    ],
)
def test_models_without_one_file_are_left_out(store: OllamaStore, kinds: list[str], why: str) -> None:
    contents: dict[str, bytes | Path] = {"model": CHAT, "model2": TALE, "tensor": b"x"}
    layers = [store.layer(f"application/vnd.ollama.image.{kind.rstrip('2')}", contents[kind]) for kind in kinds]
    store.write("a", store.manifest(layers))
    assert left_out(planned(store), "a")["the model"] == why


def test_a_vision_tower_inside_the_file_is_named(store: OllamaStore, tmp_path: Path) -> None:
    file = tmp_path / "gemma"
    file.write_bytes(b"GGUF" + bytes(40) + b"gemma3.vision.block_count" + bytes(40))
    store.add("gemma3", file)
    assert list(left_out(planned(store), "gemma3")) == ["pictures"]


def broken(store: OllamaStore, **changes: Any) -> None:
    layer = {**store.layer(MODEL, CHAT), **changes}
    store.write("a", store.manifest([layer]))


def link_blob(store: OllamaStore, target: Path) -> None:
    layer = store.layer(MODEL, CHAT)
    blob = Path(path_of(store, layer))
    blob.unlink()
    blob.symlink_to(target)
    store.write("a", store.manifest([layer]))


def link_manifest(store: OllamaStore) -> None:
    outside = store.folder.parent / "secret"
    outside.write_text(json.dumps(store.manifest([store.layer(MODEL, CHAT)])))
    path = store.write("a", "")
    path.unlink()
    path.symlink_to(outside)


def change_system(store: OllamaStore) -> None:
    layers = store.add("a", CHAT, more={"system": b"Be brief."})
    Path(path_of(store, layers[1])).write_bytes(b"Be evil.")


BROKEN: dict[str, Callable[[OllamaStore], object]] = {
    "is not a digest": lambda store: broken(store, digest="sha256:../../../etc/passwd"),
    "its file cannot be read (No such file or directory)": lambda store: broken(store, digest=f"sha256:{'0' * 64}"),
    "so its download is not complete": lambda store: broken(store, size=3),
    "its file is not a GGUF file": lambda store: store.write("a", store.manifest([store.layer(MODEL, b"hello")])),
    "the manifest is broken": lambda store: store.write("a", "{"),
    "Expected `int` >= 0": lambda store: broken(store, size=-1),
    "the blob is a link that leads out of the store": lambda store: link_blob(store, CHAT),
    "the manifest is a link that leads out of the store": link_manifest,
    "its content does not have this digest": change_system,
    "its parameters or its system prompt are broken": lambda store: store.add("a", CHAT, more={"params": b"[1]"}),
    "its name is not one of Ollama's": lambda store: store.write("a;b", store.manifest([])),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_model_is_left_out_and_the_others_are_not(store: OllamaStore, why: str) -> None:
    store.add("good", TALE)
    BROKEN[why](store)
    found = planned(store)
    assert list(found.models) == ["good"]
    (note,) = found.left_out
    assert note.what == "the model"
    assert why in note.why


def test_a_manifest_for_several_runners_is_that_of_llama_cpp(store: OllamaStore) -> None:
    inline = store.manifest([store.layer(MODEL, b"mlx")])
    wanted = store.manifest([store.layer(MODEL, CHAT)])
    blob = store.layer("", json.dumps(wanted).encode())
    entries = [{**inline, "runner": "mlx"}, {"mediaType": "x", "digest": blob["digest"], "runner": "llamacpp"}]
    store.write("a", {"mediaType": "application/vnd.ollama.manifest.list.v2+json", "manifests": entries})
    assert planned(store).models == {"a": {"path": path_of(store, wanted["layers"][0])}}


def test_the_folder_may_be_the_one_above(store: OllamaStore, tmp_path: Path) -> None:
    store.add("a", CHAT)
    assert [model.name for model in ollama_store.read_store(tmp_path)] == ["a"]
    for wrong in (tmp_path / "none", store.blobs):
        with pytest.raises(LemonbusError, match="is not the folder of Ollama's models"):
            ollama_store.read_store(wrong)


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    os.makedirs(tmp_path / ".ollama" / "models")  # noqa: PTH103 - parents
    assert ollama_store.default_folder({}) == tmp_path / ".ollama" / "models"
    assert ollama_store.default_folder({"OLLAMA_MODELS": "/srv/x"}) == Path("/srv/x")
