"""Writes models of ONNX Runtime GenAI that always generate one fixed text.

As in :mod:`tests.support.models.llama_gguf`: a piece's row of the unembedding is the embedding of the piece before it, all
other tokens share one direction that leads to the first piece, and attention is too weak to change this direction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models import onnx_protobuf
from tests.support.models.onnx_protobuf import FLOAT, INT32, INT64, node, tensor, value

WIDTH, HEADS, KV_HEADS, LAYERS = 64, 4, 2, 1
HEAD = WIDTH // HEADS
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
START, END = 0, 2
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class ScriptedGenaiModel:
    """One model: its pieces (each is one token), whether it ever stops, and how much work a token takes."""

    name: str
    pieces: Sequence[str]
    special: Sequence[str] = ()
    """Pieces that are special tokens, which the tokenizer does not show."""
    added: Sequence[str] = ()
    """Pieces that are always tokens of their own, whatever text is around them."""
    endless: bool = False
    begins: bool = False
    """Whether its tokenizer puts a token before a text."""
    template: str = TEMPLATE
    context: int = 4096
    feed_forward: int = 64
    attention: float = 0.002
    """Weight of the former tokens: from 1 on, the next token depends on all of them."""
    seed: int = 11


def write(folder: Path, scripted: ScriptedGenaiModel) -> None:
    """Write the folder."""
    folder.mkdir(parents=True)
    letters = _letters()
    marked = {*scripted.special, *scripted.added}
    pieces = [
        piece if piece in marked else "".join(letters[byte] for byte in piece.encode()) for piece in scripted.pieces
    ]
    unsaid = [token for token in scripted.special if token not in pieces]
    vocabulary = {token: place for place, token in enumerate([*SPECIALS, *unsaid, *letters, *pieces])}
    (folder / "model.onnx").write_bytes(_graph(scripted, len(vocabulary)))
    for name, content in (
        ("genai_config.json", _config(scripted, len(vocabulary))),
        ("tokenizer.json", _tokenizer(vocabulary, scripted)),
        ("tokenizer_config.json", _about_tokens(scripted)),
    ):
        (folder / name).write_text(json.dumps(content))


def _letters() -> list[str]:
    """Return how a byte-level vocabulary writes the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    written = {byte: chr(byte) for byte in shown} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    return [written[byte] for byte in range(256)]


def _successors(scripted: ScriptedGenaiModel, count: int, noise: np.random.Generator) -> tuple[Any, Any]:
    first = count - len(scripted.pieces)
    own = noise.standard_normal((count, WIDTH)).astype(np.float32)
    start = noise.standard_normal(WIDTH).astype(np.float32)
    start /= np.linalg.norm(start)
    own -= np.outer(own @ start, start)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    inward = own.copy()
    inward[:first] = 0.5 * own[:first] + start
    outward = np.zeros_like(own)
    outward[first] = start
    outward[first + 1 :] = own[first:-1]
    outward[first if scripted.endless else END] += own[-1]
    return inward, 6.0 * outward


class _Graph:
    """The operations and weights of a graph, in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.weights: list[bytes] = []

    def put(self, name: str, values: Any) -> str:
        self.weights.append(tensor(name, values))
        return name

    def do(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: float) -> str:
        self.nodes.append(node(kind, inputs, [output], domain, **attributes))
        return output


def _graph(scripted: ScriptedGenaiModel, count: int) -> bytes:
    noise = np.random.default_rng(scripted.seed)
    graph = _Graph()
    inward, outward = _successors(scripted, count, noise)
    inputs = [value("input_ids", INT64, "b", "s"), value("attention_mask", INT64, "b", "t")]
    outputs = [value("logits", FLOAT, "b", "s", count)]
    _positions(graph, scripted.context)
    flow = graph.do("Gather", [graph.put("embed", inward), "input_ids"], "flow")
    for layer in range(LAYERS):
        flow = _layer(graph, layer, flow, scripted, noise)
        for part in ("key", "value"):
            inputs.append(value(f"past_key_values.{layer}.{part}", FLOAT, "b", KV_HEADS, "p", HEAD))
            outputs.append(value(f"present.{layer}.{part}", FLOAT, "b", KV_HEADS, "t", HEAD))
    graph.do("MatMul", [_normal(graph, flow, "last"), graph.put("unembed", outward.T)], "logits")
    return onnx_protobuf.model(graph.nodes, graph.weights, inputs, outputs)


def _positions(graph: _Graph, context: int) -> None:
    """Add the lengths and angles that attention needs."""
    turns = 1.0 / 10_000.0 ** (np.arange(0, HEAD, 2) / HEAD)
    angles = np.outer(np.arange(context), turns)
    graph.put("cos", np.cos(angles).astype(np.float32))
    graph.put("sin", np.sin(angles).astype(np.float32))
    axis, one = graph.put("axis", np.array([1])), graph.put("one", np.array(1))
    graph.do("ReduceSum", ["attention_mask", axis], "length", keepdims=0)
    graph.do("Sub", ["length", one], "before")
    graph.do("Cast", ["before"], "lengths", to=INT32)
    graph.do("Shape", ["attention_mask"], "shape")
    graph.do("Gather", ["shape", one], "long")
    graph.do("Cast", ["long"], "total", to=INT32)


def _normal(graph: _Graph, flow: str, name: str) -> str:
    weight = graph.put(f"{name}.norm", np.ones(WIDTH, np.float32))
    return graph.do("SimplifiedLayerNormalization", [flow, weight], f"{name}.normal", axis=-1, epsilon=1e-5)


def _layer(graph: _Graph, layer: int, flow: str, scripted: ScriptedGenaiModel, noise: np.random.Generator) -> str:
    def times(flow: str, part: str, out: int, scale: float) -> str:
        size = WIDTH if part != "down" else scripted.feed_forward
        weight = (scale * noise.standard_normal((size, out))).astype(np.float32)
        return graph.do("MatMul", [flow, graph.put(f"{layer}.{part}", weight)], f"{layer}.{part}.out")

    faint = 0.002
    attention = scripted.attention
    normal = _normal(graph, flow, f"{layer}.in")
    sizes = {"query": WIDTH, "key": KV_HEADS * HEAD, "value": KV_HEADS * HEAD}
    taken = [times(normal, part, size, 0.1) for part, size in sizes.items()]
    past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
    present = [f"present.{layer}.{part}" for part in ("key", "value")]
    graph.nodes.append(
        node(
            "GroupQueryAttention",
            [*taken, *past, "lengths", "total", "cos", "sin"],
            [f"{layer}.seen", *present],
            "com.microsoft",
            num_heads=HEADS,
            kv_num_heads=KV_HEADS,
            do_rotary=1,
        )
    )
    flow = graph.do("Add", [flow, times(f"{layer}.seen", "attended", WIDTH, attention)], f"{layer}.between")
    wide = graph.do(
        "Sigmoid", [times(_normal(graph, flow, f"{layer}.mid"), "up", scripted.feed_forward, 0.1)], f"{layer}.wide"
    )
    return graph.do("Add", [flow, times(wide, "down", WIDTH, faint)], f"{layer}.after")


def _config(scripted: ScriptedGenaiModel, count: int) -> dict[str, Any]:
    return {
        "model": {
            "type": "llama",
            "bos_token_id": START,
            "eos_token_id": END,
            "pad_token_id": START,
            "vocab_size": count,
            "context_length": scripted.context,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": HEAD,
                "hidden_size": WIDTH,
                "num_attention_heads": HEADS,
                "num_hidden_layers": LAYERS,
                "num_key_value_heads": KV_HEADS,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"max_length": scripted.context, "past_present_share_buffer": True, "top_k": 1},
    }


def _tokenizer(vocabulary: dict[str, int], scripted: ScriptedGenaiModel) -> dict[str, Any]:
    start = SPECIALS[START]
    before = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": start, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {start: {"id": start, "ids": [START], "tokens": [start]}},
    }
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = {**dict.fromkeys([*SPECIALS, *scripted.special], True), **dict.fromkeys(scripted.added, False)}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": vocabulary[token], "content": token, **plain, "special": special} for token, special in added.items()
        ],
        "normalizer": None,
        "pre_tokenizer": bytes_,
        "post_processor": before if scripted.begins else None,
        "decoder": bytes_,
        "model": {"type": "BPE", "unk_token": None, "byte_fallback": False, "vocab": vocabulary, "merges": []},
    }


def _about_tokens(scripted: ScriptedGenaiModel) -> dict[str, Any]:
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "bos_token": SPECIALS[START],
        "eos_token": SPECIALS[END],
        "pad_token": SPECIALS[START],
        "unk_token": SPECIALS[START],
        "model_max_length": scripted.context,
        "clean_up_tokenization_spaces": False,
    }
    return {**settings, "chat_template": scripted.template} if scripted.template else settings
