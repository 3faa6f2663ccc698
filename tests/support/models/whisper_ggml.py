"""Writes whisper models in whisper.cpp's own file format: one that hears the same story in every recording, and one that is slow.

The decoder's position decides its word: the embedding of position ``n`` is far larger than any token's, and points
at the story's ``n``-th token, whose row of the embedding is the only one in that direction; attention and
feed-forward add nothing. All other rows are zero. The encoder's output does not matter.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tests.support.models.gguf_writer import Weights
from tests.support.models.scripted_texts import SPACE

MAGIC = 0x67676D6C
VOCABULARY = 51_864
"""The size of an English model's vocabulary: it determines the numbers of the special tokens."""
END, START, FIRST_TIME = 50_256, 50_257, 50_363
WIDTH, MELS, FREQUENCIES, CONTEXT = 32, 2, 201, 448
SECONDS = 1.0
"""The position at which the story ends."""
CONFIDENCE, LOUDNESS = 6.0, 100.0
FULL, HALF = 0, 1
"""ggml's types of 32 and 16 bits: large tensors have the latter."""


def write(path: Path, scripted: list[str]) -> None:
    """Write the model that hears ``story`` in the first second of each recording, in one segment."""
    words = [piece.replace(SPACE, " ") for piece in scripted]
    tokens = [FIRST_TIME, *range(len(words)), FIRST_TIME + round(SECONDS * 50), END]
    embedding = np.zeros((VOCABULARY, WIDTH), np.float32)
    places = np.zeros((CONTEXT, WIDTH), np.float32)
    for place, token in enumerate(tokens):
        embedding[token, place] = CONFIDENCE
        places[place, place] = LOUDNESS
    places[len(tokens) :] = places[len(tokens) - 1]
    with path.open("wb") as file:
        _head(file, words, audio_context=1500, width=WIDTH, heads=1, audio_layers=1)
        put(file, "decoder.positional_embedding", places)
        put(file, "decoder.token_embedding.weight", embedding)
        put(file, "encoder.positional_embedding", np.zeros((1500, WIDTH), np.float32))
        put(file, "encoder.conv1.weight", np.zeros((WIDTH, MELS, 3), np.float32))
        put(file, "encoder.conv2.weight", np.zeros((WIDTH, WIDTH, 3), np.float32))
        for name in ("conv1", "conv2"):
            put(file, f"encoder.{name}.bias", np.zeros((WIDTH, 1), np.float32))
        for name in ("encoder.ln_post", "decoder.ln"):
            _norm(file, name)
        for side in ("encoder", "decoder"):
            _block(file, f"{side}.blocks.0", crosses=side == "decoder")


def write_slow(path: Path) -> None:
    """Write a model without any weights, which whisper.cpp treats as zeros: nothing to read, much to compute."""
    with path.open("wb") as file:
        _head(file, [], audio_context=1500, width=384, heads=6, audio_layers=1)


def _head(file: BinaryIO, words: list[str], *, audio_context: int, width: int, heads: int, audio_layers: int) -> None:
    sizes = (VOCABULARY, audio_context, width, heads, audio_layers, CONTEXT, width, heads, 1, MELS, HALF)
    file.write(struct.pack("<I11i", MAGIC, *sizes))
    file.write(struct.pack("<2i", MELS, FREQUENCIES) + bytes(4 * MELS * FREQUENCIES))
    words = [*words, " "]  # the one word that whisper.cpp looks for
    file.write(struct.pack("<i", len(words)))
    file.writelines(struct.pack("<I", len(word.encode())) + word.encode() for word in words)


def put(file: BinaryIO, name: str, weights: Weights) -> None:
    """Write one array."""
    kind = HALF if name.endswith(".weight") and weights.ndim > 1 else FULL
    file.write(struct.pack(f"<3i{weights.ndim}i", weights.ndim, len(name), kind, *reversed(weights.shape)))
    file.write(name.encode())
    file.write(weights.astype(np.float16 if kind == HALF else np.float32).tobytes())


def _norm(file: BinaryIO, name: str) -> None:
    put(file, f"{name}.weight", np.ones(WIDTH, np.float32))
    put(file, f"{name}.bias", np.zeros(WIDTH, np.float32))


def _linear(file: BinaryIO, name: str, inputs: int, outputs: int, *, biased: bool = True) -> None:
    put(file, f"{name}.weight", np.zeros((outputs, inputs), np.float32))
    if biased:
        put(file, f"{name}.bias", np.zeros(outputs, np.float32))


def _block(file: BinaryIO, name: str, *, crosses: bool) -> None:
    for kind in ("attn", "cross_attn") if crosses else ("attn",):
        _norm(file, f"{name}.{kind}_ln")
        for part in ("query", "key", "value", "out"):
            _linear(file, f"{name}.{kind}.{part}", WIDTH, WIDTH, biased=part != "key")
    _norm(file, f"{name}.mlp_ln")
    _linear(file, f"{name}.mlp.0", WIDTH, 4 * WIDTH)
    _linear(file, f"{name}.mlp.2", 4 * WIDTH, WIDTH)
