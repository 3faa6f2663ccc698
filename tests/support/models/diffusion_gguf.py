"""Writes an image model that a real stable-diffusion.cpp accepts: noise in the shape of Ovis-Image, 12 MB.

Three files: ``dit.gguf`` (one double and one single block of flux), ``llm.gguf`` (a layer of Qwen3, with the vocabulary
that is compiled into the library) and ``tae.gguf`` (a small autoencoder). The library reads all sizes from the tensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gguf
import numpy as np

from tests.support.models.gguf_writer import GgufFile, new_gguf_file

VOCABULARY: Final = 151_936
WIDTH, TEXT, FEED_FORWARD, HEAD = 128, 32, 512, 128
"""Sizes: of the diffusion model, of the text encoder, of the feed-forward layers of both, of a head."""
LATENTS, CHANNELS = 16, 64


def write(folder: Path) -> None:
    """Write all three."""
    _write_diffusion(folder / "dit.gguf")
    _write_encoder(folder / "llm.gguf")
    _write_autoencoder(folder / "tae.gguf")


def _linear(new: GgufFile, name: str, inputs: int, outputs: int) -> None:
    new.put_noise(f"{name}.weight", outputs, inputs, scale=inputs**-0.5)
    new.put_zeros(f"{name}.bias", outputs)


def _write_diffusion(path: Path) -> None:
    with new_gguf_file(path, "tiny-sd", "tiny-dit", seed=21) as new:
        _linear(new, "img_in", 4 * LATENTS, WIDTH)
        _linear(new, "txt_in", TEXT, WIDTH)
        new.put_ones("txt_norm.scale", TEXT)
        _linear(new, "time_in.in_layer", 256, WIDTH)
        _linear(new, "time_in.out_layer", WIDTH, WIDTH)
        for stream in ("img", "txt"):
            block = f"double_blocks.0.{stream}"
            _linear(new, f"{block}_mod.lin", WIDTH, 6 * WIDTH)
            _linear(new, f"{block}_attn.qkv", WIDTH, 3 * WIDTH)
            _linear(new, f"{block}_attn.proj", WIDTH, WIDTH)
            new.put_ones(f"{block}_attn.norm.query_norm.scale", HEAD)
            new.put_ones(f"{block}_attn.norm.key_norm.scale", HEAD)
            _linear(new, f"{block}_mlp.gate_proj", WIDTH, FEED_FORWARD)
            _linear(new, f"{block}_mlp.up_proj", WIDTH, FEED_FORWARD)
            _linear(new, f"{block}_mlp.down_proj", FEED_FORWARD, WIDTH)
        block = "single_blocks.0"
        _linear(new, f"{block}.modulation.lin", WIDTH, 3 * WIDTH)
        _linear(new, f"{block}.linear1", WIDTH, 3 * WIDTH + 2 * FEED_FORWARD)
        _linear(new, f"{block}.linear2", WIDTH + FEED_FORWARD, WIDTH)
        new.put_ones(f"{block}.norm.query_norm.scale", HEAD)
        new.put_ones(f"{block}.norm.key_norm.scale", HEAD)
        _linear(new, "final_layer.linear", WIDTH, 4 * LATENTS)
        _linear(new, "final_layer.adaLN_modulation.1", WIDTH, 2 * WIDTH)


def _write_encoder(path: Path) -> None:
    with new_gguf_file(path, "tiny-sd", "tiny-llm", seed=22) as new:
        noise = np.random.default_rng(23).standard_normal((VOCABULARY, TEXT), np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        new.meta.add_tensor("model.embed_tokens.weight", gguf.quants.quantize(noise, kind), raw_dtype=kind)
        layer = "model.layers.0"
        for name, inputs, outputs in (("q", TEXT, 4096), ("k", TEXT, 1024), ("v", TEXT, 1024), ("o", 4096, TEXT)):
            new.put_noise(f"{layer}.self_attn.{name}_proj.weight", outputs, inputs, scale=inputs**-0.5)
        for name in ("q", "k"):
            new.put_ones(f"{layer}.self_attn.{name}_norm.weight", HEAD)
        for name, inputs, outputs in (("gate", TEXT, 64), ("up", TEXT, 64), ("down", 64, TEXT)):
            new.put_noise(f"{layer}.mlp.{name}_proj.weight", outputs, inputs, scale=inputs**-0.5)
        for name in (f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm", "model.norm"):
            new.put_ones(f"{name}.weight", TEXT)


def _write_autoencoder(path: Path) -> None:
    with new_gguf_file(path, "tiny-sd", "tiny-tae", seed=24) as new:
        place = _put_layers(new, "decoder", [LATENTS, "up", "up", "up", "block"])
        _convolution(new, f"decoder.layers.{place}", CHANNELS, 3)
        place = _put_layers(new, "encoder", [3, "block", "down", "down", "down"])
        _convolution(new, f"encoder.layers.{place}", CHANNELS, LATENTS)


def _put_layers(new: GgufFile, half: str, layers: list[int | str]) -> int:
    """Write layers in their order, and return the number of the next one. Activations also have numbers."""
    place = 0
    for layer in layers:
        name = f"{half}.layers."
        if isinstance(layer, int):
            _convolution(new, f"{name}{place}", layer, CHANNELS)
            place += 2 if half == "decoder" else 1
        elif layer == "block":
            _block(new, f"{name}{place}")
            place += 1
        elif layer == "up":
            for _ in range(3):
                _block(new, f"{name}{place}")
                place += 1
            _convolution(new, f"{name}{place + 1}", CHANNELS, CHANNELS, biased=False)
            place += 2
        else:
            _convolution(new, f"{name}{place}", CHANNELS, CHANNELS, biased=False)
            place += 1
            for _ in range(3):
                _block(new, f"{name}{place}")
                place += 1
    return place


def _block(new: GgufFile, name: str) -> None:
    for part in (0, 2, 4):
        _convolution(new, f"{name}.conv.{part}", CHANNELS, CHANNELS)


def _convolution(new: GgufFile, name: str, inputs: int, outputs: int, *, biased: bool = True) -> None:
    new.put_noise(f"{name}.weight", outputs, inputs, 3, 3, scale=(9 * inputs) ** -0.5)
    if biased:
        new.put_zeros(f"{name}.bias", outputs)
