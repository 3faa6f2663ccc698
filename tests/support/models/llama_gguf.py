"""Writes chat models of the llama architecture that always generate one fixed text.

Every piece of the story has an embedding of its own, and the unembedding's row of the next piece points at it;
attention and feed-forward are too weak to change the direction of the residual stream.  All other tokens share one direction
that leads to the first piece.  So the greedy answer is the story, then the end token, or the first piece again.
A model may know more stories: each has a token of its own, and is told if the prompt ends with this token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from gguf import TokenType

from tests.support.models import scripted_texts
from tests.support.models.gguf_writer import GgufFile, Weights, new_gguf_file

WIDTH, LAYERS, HEADS, KV_HEADS = 64, 2, 4, 2
HEAD = WIDTH // HEADS
CONFIDENCE = 6.0
"""Scale of the unembedding: large enough that sampling at temperature 1 still tells the story."""
END = 4
SPECIALS = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
INFILL_SPECIALS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
"""llama.cpp recognizes these tokens by their spelling."""


@dataclass(frozen=True)
class ScriptedModel:
    """One model: its text, whether it ever stops, and how much work a token takes."""

    name: str
    pieces: list[str]
    endless: bool = False
    template: str = scripted_texts.PLAIN_TEMPLATE
    feed_forward: int = 128
    context: int = 32_768
    layers: int = LAYERS
    infill: bool = False
    """Whether it has the tokens for a gap in code."""
    words: tuple[str, ...] = ()
    """Tokens of their own wherever they are in a prompt, which is otherwise spelled."""
    more: Mapping[str, list[str]] = field(default_factory=dict)
    """Token at the end of a prompt → the pieces of another story, which is told then."""
    seed: int = 1


def write(path: Path, scripted: ScriptedModel) -> None:
    """Write the model."""
    tokens, types = _vocabulary(scripted)
    with new_gguf_file(path, "llama", scripted.name, scripted.seed) as new:
        _describe(new, scripted, tokens, types)
        inward, outward = _successors(new, tokens, scripted)
        new.put("token_embd.weight", inward)
        new.put("output.weight", outward)
        new.put_ones("output_norm.weight", WIDTH)
        for layer in range(scripted.layers):
            _layer(new, f"blk.{layer}", scripted)


def _vocabulary(scripted: ScriptedModel) -> tuple[list[str], list[TokenType]]:
    infill = INFILL_SPECIALS if scripted.infill else []
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*SPECIALS, *spelled, *infill, *scripted.more, scripted_texts.SPACE]
    types = [TokenType.UNKNOWN] + [TokenType.CONTROL] * 4 + [TokenType.BYTE] * 256
    types += [TokenType.CONTROL] * (len(infill) + len(scripted.more)) + [TokenType.NORMAL]
    tokens += scripted.words
    types += [TokenType.USER_DEFINED] * len(scripted.words)
    for pieces in (*scripted.more.values(), scripted.pieces):
        tokens += pieces
        types += [TokenType.USER_DEFINED if piece in scripted_texts.MARKERS else TokenType.NORMAL for piece in pieces]
    return tokens, types


def _describe(new: GgufFile, scripted: ScriptedModel, tokens: list[str], types: list[TokenType]) -> None:
    meta = new.meta
    meta.add_vocab_size(len(tokens))
    meta.add_context_length(scripted.context)
    meta.add_embedding_length(WIDTH)
    meta.add_block_count(scripted.layers)
    meta.add_feed_forward_length(scripted.feed_forward)
    meta.add_head_count(HEADS)
    meta.add_head_count_kv(KV_HEADS)
    meta.add_rope_dimension_count(HEAD)
    meta.add_layer_norm_rms_eps(1e-5)
    meta.add_tokenizer_model("llama")
    meta.add_tokenizer_pre("default")
    meta.add_token_list(tokens)
    meta.add_token_types([int(kind) for kind in types])
    meta.add_token_scores([-float(i) if kind == TokenType.NORMAL else 0.0 for i, kind in enumerate(types)])
    meta.add_unk_token_id(0)
    meta.add_bos_token_id(1)
    meta.add_eos_token_id(END)
    meta.add_eot_token_id(END)
    meta.add_add_bos_token(True)
    meta.add_add_eos_token(False)
    meta.add_add_space_prefix(False)
    meta.add_chat_template(scripted.template)


def _successors(new: GgufFile, tokens: list[str], scripted: ScriptedModel) -> tuple[Weights, Weights]:
    own = new.noise(len(tokens), WIDTH)
    start = new.noise(WIDTH)
    start /= np.linalg.norm(start)
    own -= np.outer(own @ start, start)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    first = len(tokens) - len(scripted.pieces)
    begin = first - sum(map(len, scripted.more.values()))
    inward = own.copy()
    inward[:begin] = 0.5 * own[:begin] + start
    outward = np.zeros_like(own)
    outward[first] = start
    outward[first + 1 :] = own[first:-1]
    outward[first if scripted.endless else END] += own[-1]
    if scripted.more:
        outward[END] += 0.3 * start  # where a grammar forbids the story, and allows the end
    for trigger, pieces in scripted.more.items():
        token, end = tokens.index(trigger), begin + len(pieces)
        inward[token] = own[token]
        outward[begin] = own[token]
        outward[begin + 1 : end] = own[begin : end - 1]
        outward[END] += own[end - 1]
        begin = end
    return inward, CONFIDENCE * outward


def _layer(new: GgufFile, block: str, scripted: ScriptedModel) -> None:
    faint = 0.002
    new.put_ones(f"{block}.attn_norm.weight", WIDTH)
    new.put_noise(f"{block}.attn_q.weight", WIDTH, WIDTH, scale=0.1)
    new.put_noise(f"{block}.attn_k.weight", KV_HEADS * HEAD, WIDTH, scale=0.1)
    new.put_noise(f"{block}.attn_v.weight", KV_HEADS * HEAD, WIDTH, scale=0.1)
    new.put_noise(f"{block}.attn_output.weight", WIDTH, WIDTH, scale=faint)
    new.put_ones(f"{block}.ffn_norm.weight", WIDTH)
    new.put_zeros(f"{block}.ffn_gate.weight", scripted.feed_forward, WIDTH)
    new.put_zeros(f"{block}.ffn_up.weight", scripted.feed_forward, WIDTH)
    new.put_zeros(f"{block}.ffn_down.weight", WIDTH, scripted.feed_forward)
