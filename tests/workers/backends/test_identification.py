"""Which recipe runs a model file, and the model's type, from the first bytes of files as their tools write them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import PoolingType

from tests.support.models import diffusion_gguf
from tests.support.models.tiny_models import adapters, tiny_models
from workers.backends.recipe import Identity
from workers.backends.registry import HEAD_BYTES, identify, identify_parts
from workers.files.safetensors import tensor_names

EMBEDDINGS, RERANKING = Identity("llamacpp", ("embeddings",)), Identity("llamacpp", ("reranking",))
CHAT, PICTURES = Identity("llamacpp"), Identity("sd-cpp", ("image",))


def of(path: Path, name: str = "") -> Identity | None:
    """Identify a file, under a meaningless name unless one is given."""
    with path.open("rb") as file:
        return identify(name or f"x{path.suffix}", file.read(HEAD_BYTES))


def write_gguf(path: Path, architecture: str, *tensors: str, title: str = "x", pooling: int | None = None) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(title)
    if pooling is not None:
        writer.add_pooling_type(PoolingType(pooling))
    if not tensors:
        writer.add_token_list([f"token-{number}" for number in range(20_000)])
    for tensor in tensors:
        writer.add_tensor(tensor, np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def safetensors(*names: str) -> bytes:
    tensors = {name: {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]} for name in names}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


@pytest.mark.parametrize(
    ("file", "wanted"),
    [("tiny-chat", CHAT), ("tiny-embed", EMBEDDINGS), ("tiny-rerank", RERANKING), ("tiny-mmproj", Identity(""))],
)
def test_files_of_llama_cpp(file: str, wanted: Identity) -> None:
    found = next((tiny_models() / "models").rglob(f"{file.replace('tiny-mmproj', '*mmproj*')}.gguf"))
    assert of(found) == wanted


def test_what_goes_with_a_model_is_not_one(tmp_path: Path) -> None:
    assert of(adapters() / "tiny-lora.gguf") is None
    write_gguf(tmp_path / "old.gguf", "llama", "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b")
    assert of(tmp_path / "old.gguf") is None


@pytest.mark.parametrize(
    ("architecture", "title", "pooling", "wanted"),
    [
        ("qwen3", "Qwen3 Embedding 0.6B", 3, EMBEDDINGS),
        ("qwen3", "Qwen3 Reranker 0.6B", 4, RERANKING),
        ("qwen3", "Embedder of jokes, a chat", None, CHAT),
        ("llama", "x", 0, CHAT),
        ("bert", "Bge Reranker V2 M3", None, RERANKING),
        ("nomic-bert", "x", None, EMBEDDINGS),
        ("flux", "x", None, PICTURES),
        ("clip", "x", None, Identity("")),
    ],
)
def test_architecture_and_pooling_decide(
    tmp_path: Path, architecture: str, title: str, pooling: int | None, wanted: Identity
) -> None:
    write_gguf(tmp_path / "m.gguf", architecture, title=title, pooling=pooling)
    assert of(tmp_path / "m.gguf") == wanted
    assert of(tmp_path / "m.gguf", "embed-rerank-mmproj.GGUF") == wanted, "its name says nothing"


def test_diffusion_models_are_known_by_their_tensors(tmp_path: Path) -> None:
    diffusion_gguf.write(tmp_path)
    assert of(tmp_path / "dit.gguf") == PICTURES
    write_gguf(tmp_path / "full.gguf", "", "first_stage_model.x", "model.diffusion_model.input_blocks.0.0.weight")
    assert of(tmp_path / "full.gguf") == PICTURES


def test_safetensors_files(tmp_path: Path) -> None:
    encoder = [f"conditioner.embedders.0.transformer.text_model.encoder.layers.{n}.weight" for n in range(900)]
    (tmp_path / "sdxl.safetensors").write_bytes(safetensors(*encoder, "model.diffusion_model.input_blocks.0.0.bias"))
    assert of(tmp_path / "sdxl.safetensors") == PICTURES
    for names in (["model.layers.0.mlp.weight"], ["lora_unet_x.alpha"], ["decoder.conv_in.weight"], []):
        (tmp_path / "other.safetensors").write_bytes(safetensors(*names))
        assert of(tmp_path / "other.safetensors") is None


CLIP = [f"text_model.encoder.layers.{number}.mlp.fc1.weight" for number in range(32)]


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["decoder.conv_in.weight", "encoder.conv_in.weight"], "vae"),
        (["decoder.conv1.weight", "decoder.middle.0.residual.0.gamma"], "vae"),
        (["decoder.layers.0.weight"], "tae"),
        (CLIP[:12], "clip_l"),
        (CLIP, "clip_g"),
        (["encoder.block.0.layer.0.SelfAttention.k.weight"], "t5xxl"),
        (["model.embed_tokens.weight"], "text_encoder"),
        (["lora_unet_x.alpha"], ""),
        (["double_blocks.0.x"], ""),
        ([], ""),
    ],
)
def test_parts_are_known_by_their_tensors(names: list[str], part: str) -> None:
    heads = {"main.safetensors": safetensors("double_blocks.0.x"), "a.safetensors": safetensors(*names)}
    assert identify_parts("sd-cpp", "main.safetensors", heads) == ({part: "a.safetensors"} if part else {})
    assert identify_parts("llamacpp", "main.safetensors", heads) == {}
    twice = {**heads, "b.safetensors": heads["a.safetensors"]}
    assert identify_parts("sd-cpp", "main.safetensors", twice) == {}


@pytest.mark.parametrize(
    ("architecture", "part"),
    [
        ("qwen3", "text_encoder"),
        ("qwen2vl", "text_encoder"),
        ("t5encoder", "t5xxl"),
        ("clip", "llm_vision"),
        ("bert", ""),
    ],
)
def test_parts_are_known_by_their_architecture(tmp_path: Path, architecture: str, part: str) -> None:
    write_gguf(tmp_path / "a.gguf", architecture)
    heads = {"m.safetensors": safetensors("double_blocks.0.x"), "a.gguf": (tmp_path / "a.gguf").read_bytes()}
    assert identify_parts("sd-cpp", "m.safetensors", heads) == ({part: "a.gguf"} if part else {})


def test_a_whole_model_gets_only_another_decoder() -> None:
    whole, vae = safetensors("model.diffusion_model.input_blocks.0.x"), safetensors("decoder.conv_in.weight")
    heads = {"m.safetensors": whole, "v.safetensors": vae}
    assert identify_parts("sd-cpp", "m.safetensors", heads) == {"vae": "v.safetensors"}
    assert identify_parts("sd-cpp", "m.safetensors", {**heads, "c.safetensors": safetensors(*CLIP)}) == {}


@pytest.mark.parametrize("head", [b"", b"GGUF", b"GGUF\3\0\0\0", b"GGUF" + b"\xff" * 60, b"lmgg", b"\0" * 4096])
def test_what_cannot_be_read_is_a_gguf_file_by_its_name_alone(head: bytes) -> None:
    assert identify("a.gguf", head) == CHAT
    assert identify("a.safetensors", head) is None
    assert identify("a.bin", head) == (Identity("whispercpp", ("transcription",)) if head == b"lmgg" else None)


def test_a_truncated_beginning_only_loses_the_missing_facts(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "bert", "blk.0", pooling=4)
    data = (tmp_path / "m.gguf").read_bytes()
    found = {identify("a.gguf", data[:end]) for end in range(len(data))}
    assert found == {CHAT, EMBEDDINGS, RERANKING}
    header = safetensors("double_blocks.0.x")
    assert [tensor_names(header[:end]) for end in (4, 9, 30)] == [[], [], []]
    assert tensor_names(header) == ["double_blocks.0.x"]
