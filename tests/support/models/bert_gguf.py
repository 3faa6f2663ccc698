"""Writes models of the bert architecture over single characters: embeddings, and with a rank head a reranker.

The vocabulary has every character twice, at a word's start and inside, with nearly the same embedding; so similar
spellings get similar vectors, which is all that a test of similarity needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from gguf import PoolingType, TokenType

from tests.support.models.gguf_writer import GgufFile, new_gguf_file
from tests.support.models.scripted_texts import SPACE

CONTEXT = 512
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = [chr(code) for code in range(33, 127) if not chr(code).isupper()]


class BertSize(NamedTuple):
    """Numbers of a vector, layers, heads of a layer, and numbers between its two matrices."""

    width: int
    layers: int
    heads: int
    feed_forward: int


TINY: Final = BertSize(32, 2, 4, 64)
MINILM: Final = BertSize(384, 6, 12, 1536)
"""Like all-MiniLM-L6-v2, so that it takes as long."""


def write(path: Path, name: str, *, ranks: bool, seed: int, size: BertSize = TINY) -> None:
    """Write the model; with ``ranks`` it scores pairs instead of embedding texts."""
    with new_gguf_file(path, "bert", name, seed) as new:
        _describe(new, size, ranks=ranks)
        _embeddings(new, size.width)
        for layer in range(size.layers):
            _layer(new, f"blk.{layer}", size)
        if ranks:
            new.meta.add_classifier_output_labels(["score"])
            for head, rows in (("cls", size.width), ("cls.output", 1)):
                new.put_noise(f"{head}.weight", rows, size.width, scale=0.3)
                new.put_zeros(f"{head}.bias", rows)


def _describe(new: GgufFile, size: BertSize, *, ranks: bool) -> None:
    meta = new.meta
    tokens = [*SPECIALS, *(SPACE + character for character in CHARACTERS), *CHARACTERS]
    types = [TokenType.CONTROL] * len(SPECIALS) + [TokenType.NORMAL] * 2 * len(CHARACTERS)
    meta.add_vocab_size(len(tokens))
    meta.add_context_length(CONTEXT)
    meta.add_embedding_length(size.width)
    meta.add_block_count(size.layers)
    meta.add_feed_forward_length(size.feed_forward)
    meta.add_head_count(size.heads)
    meta.add_layer_norm_eps(1e-12)
    meta.add_causal_attention(False)
    meta.add_pooling_type(PoolingType.RANK if ranks else PoolingType.MEAN)
    meta.add_tokenizer_model("bert")
    meta.add_tokenizer_pre("default")
    meta.add_token_list(tokens)
    meta.add_token_types([int(kind) for kind in types])
    meta.add_token_type_count(2)
    meta.add_pad_token_id(0)
    meta.add_unk_token_id(1)
    meta.add_bos_token_id(2)
    meta.add_uint32("tokenizer.ggml.cls_token_id", 2)
    meta.add_eos_token_id(3)
    meta.add_sep_token_id(3)
    meta.add_mask_token_id(4)
    meta.add_add_bos_token(True)
    meta.add_add_eos_token(True)


def _embeddings(new: GgufFile, width: int) -> None:
    half = len(CHARACTERS)
    table = new.noise(len(SPECIALS) + 2 * half, width)
    starts, insides = table[len(SPECIALS) : -half], table[-half:]
    insides[:] = 0.9 * starts + 0.1 * insides
    new.put("token_embd.weight", table)
    new.put_noise("position_embd.weight", CONTEXT, width, scale=0.02)
    new.put_noise("token_types.weight", 2, width, scale=0.02)
    new.put_norm("token_embd_norm", width)


def _layer(new: GgufFile, block: str, size: BertSize) -> None:
    width, between = size.width, size.feed_forward
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        new.put_noise(f"{block}.{name}.weight", width, width, scale=0.15)
        new.put_zeros(f"{block}.{name}.bias", width)
    new.put_norm(f"{block}.attn_output_norm", width)
    new.put_noise(f"{block}.ffn_up.weight", between, width, scale=0.1)
    new.put_zeros(f"{block}.ffn_up.bias", between)
    new.put_noise(f"{block}.ffn_down.weight", width, between, scale=0.1)
    new.put_zeros(f"{block}.ffn_down.bias", width)
    new.put_norm(f"{block}.layer_output_norm", width)
