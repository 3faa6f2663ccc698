"""What a GGUF model keeps for each token of its context, and computes for each token of a batch: from its header alone. Pure.

What a layer caches follows from its tensors, and how much from the model's numbers. So a model of an architecture that is not
known here is counted as well; only its pattern of sliding windows must be in its header, otherwise every layer counts as whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from workers.backends.llamacpp.descriptor import UNCACHED
from workers.files.gguf import ArrayLength, GgufHeader, GgufTensor, HeaderValue

_BLOCK: Final = re.compile(r"blk\.(\d{1,4})\.(.*)")
_KEYS: Final = ("attn_k.", "attn_kv_a_mqa.", "attn_kv_b.", "attn_k_b.", "attn_qkv.", "attn_k_a.")
"""Tensors of a layer with attention."""
_STATES: Final = ("ssm_", "shortconv.", "time_mix_")
"""Tensors of a layer with a state instead of a cache, or beside one."""
_WINDOW_PATTERNS: Final = {
    "gemma2": 2,
    "gpt-oss": 2,
    "gemma3n": 5,
    "gemma3": 6,
    "gemma-embedding": 6,
    **dict.fromkeys(("cohere2", "olmo2", "exaone4", "llama4", "smallthinker", "afmoe"), 4),
}
"""Architecture → of how many layers one has the whole context, where the header does not say."""
_CHUNK: Final = {"llama4": 8192}
"""Windows of architectures that have them without saying so."""
_LAYERS_WITH_CACHE: Final = {"gemma3n": 20}
"""Layers from the start that have caches; the others use theirs."""
_STATE_BYTES: Final = 4
MAX_LAYERS: Final = 4096


class LayerCache(NamedTuple):
    """What one layer keeps."""

    key: int = 0
    """Elements for each token."""
    value: int = 0
    window: int = 0
    """The last tokens that it keeps; 0: all of the context."""
    state: int = 0
    """Bytes for each slot, however long its context is."""


class ModelShape(NamedTuple):
    """A model's numbers."""

    layers: tuple[LayerCache, ...]
    vocabulary: int
    merges: int
    width: int
    heads: int
    head_width: int
    """Elements of a head's key."""
    widest: int
    """Elements of the widest intermediate result."""
    feed_forward: int
    """Elements that its feed-forward network holds at once for each token of a batch."""
    attention: int
    """The same of its attention, without the scores of the tokens."""
    cached: bool
    """Whether it keeps keys and values between two batches."""


class _Numbers:
    """The numbers of a header, by the names that they have in every architecture."""

    def __init__(self, header: GgufHeader) -> None:
        self._keys, self._prefix = header.keys, header.architecture

    def of(self, name: str, layer: int = 0, default: int = 0) -> int:
        """Return a number of a layer, or of the model."""
        value = self._keys.get(f"{self._prefix}.{name}")
        if isinstance(value, tuple):
            value = value[layer] if layer < len(value) else default
        return int(value) if isinstance(value, int | float) and 0 <= value < 2**31 else default

    def greatest(self, name: str, default: int = 0) -> int:
        """Return the largest number of all layers."""
        value = self._keys.get(f"{self._prefix}.{name}")
        layers = len(value) if isinstance(value, tuple) else 1
        return max((self.of(name, layer, default) for layer in range(layers)), default=default)

    def value(self, name: str) -> HeaderValue | None:
        """Return the value as it is."""
        return self._keys.get(f"{self._prefix}.{name}")


def model_shape(headers: Sequence[GgufHeader]) -> ModelShape:
    """Read the numbers of a model from the headers of its files. Only the first of several has all keys."""
    header = headers[0]
    numbers = _Numbers(header)
    names = _names_by_layer(tensor for each in headers for tensor in each.tensors)
    width, heads = numbers.of("embedding_length"), numbers.greatest("attention.head_count")
    head_width = numbers.of("attention.key_length", default=width // heads if heads else 0)
    count = min(numbers.of("block_count"), MAX_LAYERS)
    cached = header.architecture not in UNCACHED
    layers = tuple(
        _layer(header.architecture, numbers, layer, names.get(layer, set()), head_width) for layer in range(count)
    )
    vocabulary = _length(header.keys.get("tokenizer.ggml.tokens")) or numbers.of("vocab_size")
    feed_forward, widest = _feed_forward(numbers, width, names)
    return ModelShape(
        layers=layers if cached else (),
        vocabulary=vocabulary,
        merges=_length(header.keys.get("tokenizer.ggml.merges")),
        width=width,
        heads=heads,
        head_width=head_width,
        widest=widest,
        feed_forward=feed_forward,
        attention=_attention(numbers, width, heads, head_width),
        cached=cached,
    )


def _length(value: HeaderValue | None) -> int:
    return value.items if isinstance(value, ArrayLength) else len(value) if isinstance(value, tuple) else 0


def _names_by_layer(tensors: Iterable[GgufTensor]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for tensor in tensors:
        if in_block := _BLOCK.match(tensor.name):
            found.setdefault(int(in_block[1]), set()).add(in_block[2])
    return found


def layer_of(name: str) -> int | None:
    """Return the layer of a tensor; None if it belongs to none."""
    found = _BLOCK.match(name)
    return int(found[1]) if found else None


def _layer(architecture: str, numbers: _Numbers, layer: int, names: set[str], head_width: int) -> LayerCache:
    with_state = any(name.startswith(_STATES) for name in names)
    state = _state(numbers, names) * _STATE_BYTES if with_state else 0
    attends = any(name.startswith(_KEYS) for name in names)
    if with_state and not any(name.startswith(("attn_k.", "attn_kv_a_mqa.")) for name in names):
        attends = False
    with_cache = numbers.of("block_count") - numbers.of("attention.shared_kv_layers")
    if not attends or layer >= min(with_cache, _LAYERS_WITH_CACHE.get(architecture, with_cache)):
        return LayerCache(state=state)
    window = _window(architecture, numbers, layer)
    heads = numbers.of("attention.head_count_kv", layer, numbers.of("attention.head_count", layer))
    suffix = "_swa" if window else ""
    key = numbers.of(f"attention.key_length{suffix}", default=head_width)
    value = numbers.of(f"attention.value_length{suffix}", default=head_width)
    if numbers.of("attention.key_length_mla"):
        value = 0  # it is a part of the key
    return LayerCache(heads * key + numbers.of("attention.indexer.key_length"), heads * value, window, state)


def _window(architecture: str, numbers: _Numbers, layer: int) -> int:
    size = numbers.of("attention.sliding_window", default=_CHUNK.get(architecture, 0))
    pattern = numbers.value("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        return size if layer < len(pattern) and pattern[layer] else 0
    every = pattern if isinstance(pattern, int) else _WINDOW_PATTERNS.get(architecture, 1)
    return size if every and layer % every < every - 1 else 0


def _state(numbers: _Numbers, names: set[str]) -> int:
    """Return the elements of a layer's state for one slot."""
    width = numbers.of("embedding_length")
    if any(name.startswith("time_mix_") for name in names):
        return 2 * width + width * numbers.of("wkv.head_size")
    if any(name.startswith("shortconv.") for name in names):
        return max(0, numbers.of("shortconv.l_cache") - 1) * width
    inner, size, before = (
        numbers.of("ssm.inner_size"),
        numbers.of("ssm.state_size"),
        max(0, numbers.of("ssm.conv_kernel") - 1),
    )
    if each := numbers.of("kda.head_dim"):
        heads = numbers.greatest("attention.head_count")
        return heads * each * each + 3 * before * heads * each
    return size * inner + before * (inner + 2 * numbers.of("ssm.group_count") * size)


def _feed_forward(numbers: _Numbers, width: int, names: dict[int, set[str]]) -> tuple[int, int]:
    """Return the elements for each token of a batch, of all that is held at once, and of the widest result.

    Found by comparing with the buffers that llama.cpp (b11549) reserves.
    """
    dense, used = numbers.greatest("feed_forward_length"), numbers.of("expert_used_count")
    found = set[str]().union(*names.values()) if names else set[str]()
    gated = any(name.startswith(("ffn_gate.", "ffn_gate_exps.")) for name in found)
    held, widest = (3 * dense + 5 * width if gated else 2 * dense + 2 * width), max(dense, width)
    if used and any("_exps" in name for name in found):
        each = numbers.greatest("expert_feed_forward_length", dense)
        if not any(name.startswith("ffn_up.") for name in found):
            held = 0  # no layer is dense
        together, out = each * used, width * used
        held = max(held, 3 * together + 5 * width, out + together + 5 * width, 2 * out + 3 * width)
        widest = max(widest, together)
    if inner := numbers.of("ssm.inner_size"):
        held = max(held, 7 * inner + 2 * width)
    return held, widest


def _attention(numbers: _Numbers, width: int, heads: int, head_width: int) -> int:
    if numbers.of("attention.key_length_mla"):
        latent = numbers.of("attention.kv_lora_rank")
        return 2 * width + heads * (2 * numbers.of("attention.key_length_mla") + latent + head_width)
    return 3 * width + 3 * heads * head_width + 2 * numbers.greatest("attention.head_count_kv", heads) * head_width
