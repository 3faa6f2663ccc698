"""GGUF models of several architectures and any size, whose weights are zeros: a file of gigabytes takes no space on the disk.

A real llama.cpp loads them. They show what memory an engine takes; they write nonsense.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, NamedTuple

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from workers.files.gguf import ArrayLength, GgufHeader, GgufTensor, HeaderValue

_BYTES: Final = 256
_SPECIALS: Final = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(_BYTES))]
Shapes = dict[str, tuple[tuple[int, ...], Type]]


class SyntheticModel(NamedTuple):
    """A model, before it is a file."""

    architecture: str
    keys: dict[str, int | float | bool]
    tensors: Shapes
    vocabulary: int

    def header(self) -> GgufHeader:
        """Return what a reader finds in the file."""
        keys: dict[str, HeaderValue] = {f"{self.architecture}.{name}": value for name, value in self.keys.items()}
        keys["tokenizer.ggml.tokens"] = ArrayLength(self.vocabulary)
        tensors = [
            GgufTensor(name, shape, kind.value, _size(shape, kind)) for name, (shape, kind) in self.tensors.items()
        ]
        return GgufHeader(self.architecture, int(self.keys["context_length"]), keys, tensors)

    def write(self, path: Path) -> Path:
        """Write the file, with holes for the weights."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for name, value in self.keys.items():
            add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
            (writer.add_float32 if isinstance(value, float) else add)(f"{self.architecture}.{name}", value)
        words = self.vocabulary - len(_SPECIALS)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([*_SPECIALS, *(f"word{number}" for number in range(words))])
        writer.add_token_scores([0.0] * self.vocabulary)
        writer.add_token_types([2, 3, 3] + [6] * _BYTES + [1] * words)
        if "token_types.weight" in self.tensors:
            writer.add_token_type_count(2)
        size = 0
        for name, (shape, kind) in self.tensors.items():
            rows = tuple(reversed(shape))
            plain = {Type.F32: np.dtype(np.float32), Type.F16: np.dtype(np.float16)}.get(kind)
            stored = rows if plain else gguf.quant_shape_to_byte_shape(rows, kind)
            writer.add_tensor_info(
                name, stored, plain or np.dtype(np.uint8), _size(shape, kind), raw_dtype=None if plain else kind
            )
            size += -(-_size(shape, kind) // 32) * 32
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        start = -(-path.stat().st_size // 32) * 32
        with path.open("r+b") as file:
            file.truncate(start + size)
        return path


def _size(shape: tuple[int, ...], kind: Type) -> int:
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    return math.prod(shape) // elements * size


def _vector(size: int) -> tuple[tuple[int, ...], Type]:
    return (size,), Type.F32


def _outer(width: int, vocabulary: int, kind: Type, tied: bool = False) -> Shapes:
    found: Shapes = {"token_embd.weight": ((width, vocabulary), kind), "output_norm.weight": _vector(width)}
    return found if tied else {**found, "output.weight": ((width, vocabulary), kind)}


def _attention(block: str, width: int, heads: int, kv_heads: int, head: int, kind: Type) -> Shapes:
    return {
        f"{block}.attn_norm.weight": _vector(width),
        f"{block}.attn_q.weight": ((width, heads * head), kind),
        f"{block}.attn_k.weight": ((width, kv_heads * head), kind),
        f"{block}.attn_v.weight": ((width, kv_heads * head), kind),
        f"{block}.attn_output.weight": ((heads * head, width), kind),
    }


def _feed_forward(block: str, width: int, inner: int, kind: Type) -> Shapes:
    return {
        f"{block}.ffn_norm.weight": _vector(width),
        f"{block}.ffn_gate.weight": ((width, inner), kind),
        f"{block}.ffn_up.weight": ((width, inner), kind),
        f"{block}.ffn_down.weight": ((inner, width), kind),
    }


def _numbers(
    layers: int, width: int, inner: int, context: int = 32_768, **more: float
) -> dict[str, int | float | bool]:
    return {
        "block_count": layers,
        "context_length": context,
        "embedding_length": width,
        "feed_forward_length": inner,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def llama(
    *,
    layers: int = 16,
    width: int = 2048,
    heads: int = 32,
    kv_heads: int = 8,
    inner: int = 8192,
    vocabulary: int = 32_000,
    kind: Type = Type.Q8_0,
    tied: bool = False,
) -> SyntheticModel:
    """Return a model in the shape of Llama 3: by default about that of 3.2-1B."""
    head = width // heads
    tensors = _outer(width, vocabulary, kind, tied)
    for layer in range(layers):
        tensors |= _attention(f"blk.{layer}", width, heads, kv_heads, head, kind)
        tensors |= _feed_forward(f"blk.{layer}", width, inner, kind)
    keys = _numbers(
        layers,
        width,
        inner,
        vocab_size=vocabulary,
        attention__head_count=heads,
        attention__head_count_kv=kv_heads,
        attention__layer_norm_rms_epsilon=1e-5,
        rope__dimension_count=head,
    )
    return SyntheticModel("llama", keys, tensors, vocabulary)


def qwen3moe(
    *,
    layers: int = 12,
    width: int = 1024,
    inner: int = 512,
    experts: int = 32,
    used: int = 8,
    vocabulary: int = 32_000,
    kind: Type = Type.Q8_0,
) -> SyntheticModel:
    """Return a mixture of experts in the shape of Qwen3."""
    heads, kv_heads, head = 16, 4, 128
    tensors = _outer(width, vocabulary, kind)
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors |= _attention(block, width, heads, kv_heads, head, kind)
        tensors |= {
            f"{block}.attn_q_norm.weight": _vector(head),
            f"{block}.attn_k_norm.weight": _vector(head),
            f"{block}.ffn_norm.weight": _vector(width),
            f"{block}.ffn_gate_inp.weight": ((width, experts), Type.F32),
            f"{block}.ffn_gate_exps.weight": ((width, inner, experts), kind),
            f"{block}.ffn_up_exps.weight": ((width, inner, experts), kind),
            f"{block}.ffn_down_exps.weight": ((inner, width, experts), kind),
        }
    keys = _numbers(
        layers,
        width,
        4 * inner,
        attention__head_count=heads,
        attention__head_count_kv=kv_heads,
        attention__key_length=head,
        attention__value_length=head,
        attention__layer_norm_rms_epsilon=1e-6,
        expert_count=experts,
        expert_used_count=used,
        expert_feed_forward_length=inner,
    )
    return SyntheticModel("qwen3moe", keys, tensors, vocabulary)


def gemma3(*, layers: int = 26, vocabulary: int = 65_536, kind: Type = Type.Q8_0) -> SyntheticModel:
    """Return a model in the shape of Gemma 3 1B: five of six layers see only the last 512 tokens."""
    width, inner, heads, kv_heads, head = 1152, 6912, 4, 1, 256
    tensors = _outer(width, vocabulary, kind, tied=True)
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors |= _attention(block, width, heads, kv_heads, head, kind) | _feed_forward(block, width, inner, kind)
        tensors |= {f"{block}.{name}.weight": _vector(head) for name in ("attn_q_norm", "attn_k_norm")}
        tensors |= {f"{block}.{name}.weight": _vector(width) for name in ("post_attention_norm", "post_ffw_norm")}
    keys = _numbers(
        layers,
        width,
        inner,
        attention__head_count=heads,
        attention__head_count_kv=kv_heads,
        attention__key_length=head,
        attention__value_length=head,
        attention__layer_norm_rms_epsilon=1e-6,
        attention__sliding_window=512,
    )
    return SyntheticModel("gemma3", keys, tensors, vocabulary)


def mamba(*, layers: int = 24, width: int = 1024, vocabulary: int = 32_000, kind: Type = Type.Q8_0) -> SyntheticModel:
    """Return a recurrent model, which has a state for each slot instead of a cache."""
    inner, state, window, rank = 2 * width, 16, 4, width // 16
    tensors = _outer(width, vocabulary, kind)
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors |= {
            f"{block}.attn_norm.weight": _vector(width),
            f"{block}.ssm_in.weight": ((width, 2 * inner), kind),
            f"{block}.ssm_conv1d.weight": ((window, inner), Type.F32),
            f"{block}.ssm_conv1d.bias": _vector(inner),
            f"{block}.ssm_x.weight": ((inner, rank + 2 * state), kind),
            f"{block}.ssm_dt.weight": ((rank, inner), Type.F32),
            f"{block}.ssm_dt.bias": _vector(inner),
            f"{block}.ssm_a": ((state, inner), Type.F32),
            f"{block}.ssm_d": _vector(inner),
            f"{block}.ssm_out.weight": ((inner, width), kind),
        }
    keys = _numbers(
        layers,
        width,
        0,
        attention__head_count=0,
        attention__layer_norm_rms_epsilon=1e-5,
        ssm__conv_kernel=window,
        ssm__inner_size=inner,
        ssm__state_size=state,
        ssm__time_step_rank=rank,
    )
    return SyntheticModel("mamba", keys, tensors, vocabulary)


def deepseek2(*, layers: int = 8, vocabulary: int = 32_000, kind: Type = Type.Q8_0) -> SyntheticModel:
    """Return a model with latent attention: all heads share one key, of which the value is a part."""
    width, inner, heads, latent, rope, rest, value = 1024, 4096, 16, 512, 64, 128, 128
    tensors = _outer(width, vocabulary, kind)
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors |= {
            f"{block}.attn_norm.weight": _vector(width),
            f"{block}.attn_q.weight": ((width, heads * (rest + rope)), kind),
            f"{block}.attn_kv_a_mqa.weight": ((width, latent + rope), kind),
            f"{block}.attn_kv_a_norm.weight": _vector(latent),
            f"{block}.attn_k_b.weight": ((rest, latent, heads), kind),
            f"{block}.attn_v_b.weight": ((latent, value, heads), kind),
            f"{block}.attn_output.weight": ((heads * value, width), kind),
            **_feed_forward(block, width, inner, kind),
        }
    keys = _numbers(
        layers,
        width,
        inner,
        vocab_size=vocabulary,
        attention__head_count=heads,
        attention__head_count_kv=1,
        attention__key_length=latent + rope,
        attention__value_length=latent,
        attention__key_length_mla=rest + rope,
        attention__value_length_mla=value,
        attention__kv_lora_rank=latent,
        attention__q_lora_rank=0,
        attention__layer_norm_rms_epsilon=1e-6,
        rope__dimension_count=rope,
        leading_dense_block_count=layers,
        expert_count=8,
        expert_used_count=2,
        expert_feed_forward_length=256,
        expert_shared_count=1,
        expert_weights_scale=1.0,
    )
    return SyntheticModel("deepseek2", keys, tensors, vocabulary)


def bert(*, layers: int = 6, context: int = 512, kind: Type = Type.F16) -> SyntheticModel:
    """Return an encoder in the shape of all-MiniLM-L6-v2."""
    width, inner, heads, vocabulary = 384, 1536, 12, 30_522
    tensors: Shapes = {
        "token_embd.weight": ((width, vocabulary), kind),
        "position_embd.weight": ((width, context), Type.F32),
        "token_types.weight": ((width, 2), Type.F32),
        "token_embd_norm.weight": _vector(width),
        "token_embd_norm.bias": _vector(width),
    }
    for layer in range(layers):
        for name, rows in (("attn_q", width), ("attn_k", width), ("attn_v", width), ("attn_output", width)):
            tensors |= {f"blk.{layer}.{name}.weight": ((width, rows), kind), f"blk.{layer}.{name}.bias": _vector(rows)}
        for name, columns, rows in (("ffn_up", width, inner), ("ffn_down", inner, width)):
            tensors |= {
                f"blk.{layer}.{name}.weight": ((columns, rows), kind),
                f"blk.{layer}.{name}.bias": _vector(rows),
            }
        for name in ("attn_output_norm", "layer_output_norm"):
            tensors |= {f"blk.{layer}.{name}.{part}": _vector(width) for part in ("weight", "bias")}
    keys = _numbers(
        layers,
        width,
        inner,
        context,
        attention__head_count=heads,
        attention__layer_norm_epsilon=1e-12,
        attention__causal=False,
        pooling_type=1,
    )
    return SyntheticModel("bert", keys, tensors, vocabulary)
