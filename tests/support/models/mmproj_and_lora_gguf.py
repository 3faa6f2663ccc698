"""Writes additions to a chat model: a vision tower (``--mmproj``) and a LoRA adapter."""

from __future__ import annotations

from pathlib import Path

import gguf

from tests.support.models.gguf_writer import GgufFile, new_gguf_file
from tests.support.models.llama_gguf import LAYERS, WIDTH

IMAGE, PATCH, TOWER, TOWER_HEADS, TOWER_LAYERS, TOWER_FEED_FORWARD = 32, 8, 32, 2, 2, 64
RANK = 2


def write_vision(path: Path) -> None:
    """Write a tower in LLaVA's shape: any picture becomes sixteen tokens."""
    with new_gguf_file(path, "clip", "tiny-mmproj", seed=9) as new:
        meta = new.meta
        meta.add_type("mmproj")
        meta.add_clip_has_vision_encoder(True)
        meta.add_bool("clip.has_llava_projector", True)
        meta.add_clip_projector_type("mlp")
        meta.add_vision_use_gelu(True)
        meta.add_vision_image_size(IMAGE)
        meta.add_vision_patch_size(PATCH)
        meta.add_vision_embedding_length(TOWER)
        meta.add_vision_feed_forward_length(TOWER_FEED_FORWARD)
        meta.add_vision_projection_dim(WIDTH)
        meta.add_vision_block_count(TOWER_LAYERS)
        meta.add_vision_head_count(TOWER_HEADS)
        meta.add_vision_attention_layernorm_eps(1e-5)
        meta.add_vision_image_mean([0.5] * 3)
        meta.add_vision_image_std([0.5] * 3)
        new.put_noise("v.patch_embd.weight", TOWER, 3, PATCH, PATCH, scale=0.1)
        new.put_noise("v.position_embd.weight", (IMAGE // PATCH) ** 2, TOWER, scale=0.1)
        new.put_norm("v.pre_ln", TOWER)
        for layer in range(TOWER_LAYERS):
            _tower_layer(new, f"v.blk.{layer}")
        new.put_norm("v.post_ln", TOWER)
        _linear(new, "mm.0", TOWER, WIDTH)
        _linear(new, "mm.2", WIDTH, WIDTH)


def _tower_layer(new: GgufFile, block: str) -> None:
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        _linear(new, f"{block}.{name}", TOWER, TOWER)
    new.put_norm(f"{block}.ln1", TOWER)
    new.put_norm(f"{block}.ln2", TOWER)
    _linear(new, f"{block}.ffn_up", TOWER, TOWER_FEED_FORWARD)
    _linear(new, f"{block}.ffn_down", TOWER_FEED_FORWARD, TOWER)


def _linear(new: GgufFile, name: str, inputs: int, outputs: int) -> None:
    new.put_noise(f"{name}.weight", outputs, inputs, scale=0.1)
    new.put_zeros(f"{name}.bias", outputs)


def write_adapter(path: Path) -> None:
    """Write an adapter for any of the chat models: it changes the logits at scale 1, but not at scale 0."""
    with new_gguf_file(path, "llama", "tiny-lora", seed=11) as new:
        new.meta.add_type(gguf.GGUFType.ADAPTER)
        new.meta.add_string(gguf.Keys.Adapter.TYPE, "lora")
        new.meta.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 4.0)
        for layer in range(LAYERS):
            name = f"blk.{layer}.attn_output.weight"
            new.put_noise(f"{name}.lora_a", RANK, WIDTH, scale=1.0)
            new.put_noise(f"{name}.lora_b", WIDTH, RANK, scale=1.0)
