"""Tiny models with the inputs and outputs of Kokoro, which are folders: written where they are wanted, in milliseconds.

============ =================================================================================================
tiny-kokoro  makes a tone for a text: 50 ms for each phoneme (at speed 1), the higher, the higher the voice is
paced-kokoro the same, and takes most of a second for each long piece
slow-kokoro  the same, and takes many seconds for it
============ =================================================================================================

All have the voices ``af_heart`` and ``am_onyx`` (1.5 times as high), and a dictionary of a few words, ``WORDS``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

from tests.support.models import onnx_protobuf as onnx

STEPS: Final = {"tiny-kokoro": 0, "paced-kokoro": 20, "slow-kokoro": 400}
"""Name → how often the model computes its unused samples, which only take time."""
SAMPLES_PER_PHONEME: Final = 1_200
HERTZ: Final = {"af_heart": 440.0, "am_onyx": 660.0}
"""Voice → the frequency of its tone."""
WORDS: Final = {"hello": "həlˈO", "world": "wˈɜɹld", "again": "əɡˈɛn", "one": "wˈʌn", "two": "tˈu"}
LETTERS: Final = {chr(ord("A") + place): f"ˈ{symbol}" for place, symbol in enumerate("AIOWYiuæɑəɛɜɪʊʌAIOWYiuæɑəɛ")}
_UNUSED_SAMPLES: Final = 20_000
"""For each phoneme."""


def write_kokoro_model(parent: Path, name: str = "tiny-kokoro") -> Path:
    """Write a model into a folder of ``parent`` that has its name; return the model's file."""
    folder = parent / name
    (folder / "voices").mkdir(parents=True)
    (folder / "lexicon").mkdir()
    file = folder / f"{name}.onnx"
    file.write_bytes(_model(STEPS[name]))
    for voice, hertz in HERTZ.items():
        vectors = np.zeros((510, 256), "<f4")
        vectors[:, 0] = hertz
        (folder / "voices" / f"{voice}.bin").write_bytes(vectors.tobytes())
    (folder / "lexicon" / "us_gold.json").write_text(json.dumps({**WORDS, **LETTERS}))
    return file


def _model(steps: int) -> bytes:
    """Return the file: a sine whose length follows from the number of phonemes, and whose frequency is the style's first number."""
    weights = [
        onnx.tensor("one", np.array(1, np.int64)),
        onnx.tensor("zero", np.array(0, np.int64)),
        onnx.tensor("each", np.array(float(SAMPLES_PER_PHONEME), np.float32)),
        onnx.tensor("ends", np.array(2, np.int64)),
        onnx.tensor("turn", np.array(2 * np.pi / 24_000, np.float32)),
        onnx.tensor("half", np.array(0.5, np.float32)),
        onnx.tensor("axes", np.array([0, 1], np.int64)),
        onnx.tensor("first", np.array([0, 0], np.int64)),
        onnx.tensor("second", np.array([1, 1], np.int64)),
        onnx.tensor("row", np.array([0], np.int64)),
        onnx.tensor("many", np.array(_UNUSED_SAMPLES, np.int64)),
        onnx.tensor("nothing", np.array(0.0, np.float32)),
    ]
    nodes = [
        onnx.node("Shape", ["input_ids"], ["shape"]),
        onnx.node("Gather", ["shape", "one"], ["with_ends"]),
        onnx.node("Sub", ["with_ends", "ends"], ["phonemes"]),
        onnx.node("Cast", ["phonemes"], ["count"], to=onnx.FLOAT),
        onnx.node("Squeeze", ["speed"], ["pace"]),
        onnx.node("Mul", ["count", "each"], ["long"]),
        onnx.node("Div", ["long", "pace"], ["length"]),
        onnx.node("Cast", ["length"], ["samples"], to=onnx.INT64),
        onnx.node("Range", ["zero", "samples", "one"], ["places"]),
        onnx.node("Cast", ["places"], ["times"], to=onnx.FLOAT),
        onnx.node("Slice", ["style", "first", "second", "axes"], ["pitch"]),
        onnx.node("Squeeze", ["pitch"], ["hertz"]),
        onnx.node("Mul", ["times", "turn"], ["angles"]),
        onnx.node("Mul", ["angles", "hertz"], ["phases"]),
        onnx.node("Sin", ["phases"], ["sine"]),
        onnx.node("Mul", ["sine", "half"], ["tone"]),
    ]
    last = "tone"
    if steps:
        nodes += [
            onnx.node("Mul", ["phonemes", "many"], ["unused"]),
            onnx.node("Range", ["zero", "unused", "one"], ["unused_places"]),
            onnx.node("Cast", ["unused_places"], ["wave0"], to=onnx.FLOAT),
        ]
        nodes += [onnx.node("Sin", [f"wave{step}"], [f"wave{step + 1}"]) for step in range(steps)]
        nodes += [
            onnx.node("ReduceMax", [f"wave{steps}"], ["peak"], keepdims=0),
            onnx.node("Mul", ["peak", "nothing"], ["silence"]),
            onnx.node("Add", ["tone", "silence"], ["late_tone"]),
        ]
        last = "late_tone"
    nodes.append(onnx.node("Unsqueeze", [last, "row"], ["waveform"]))
    inputs = [
        onnx.value("input_ids", onnx.INT64, 1, "sequence_length"),
        onnx.value("style", onnx.FLOAT, 1, 256),
        onnx.value("speed", onnx.FLOAT, 1),
    ]
    return onnx.model(nodes, weights, inputs, [onnx.value("waveform", onnx.FLOAT, 1, "num_samples")])
