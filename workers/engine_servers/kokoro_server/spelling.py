"""The pronunciation of English words that no dictionary has, from their letters: a small recurrent network.

The weights are those of the package g2p_en: an encoder and a decoder, each one layer of gated recurrent units (GRU), over
letters and the phonemes of CMUdict.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from workers.files.errors import BrokenError

MAX_LETTERS: Final = 40
_MAX_PHONEMES: Final = 60
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_UNKNOWN, _END_OF_WORD, _FIRST_LETTER = 1, 2, 3
"""Numbers of the network's input."""
_BEGIN, _END, _FIRST_PHONEME = 2, 3, 4
"""Numbers of its output."""
_PHONEMES: Final = {
    "AA": ("ɑ", 3),
    "AE": ("æ", 3),
    "AH": ("ʌ", 3),
    "AO": ("ɔ", 3),
    "AW": ("W", 3),
    "AY": ("I", 3),
    "B": ("b", 0),
    "CH": ("ʧ", 0),
    "D": ("d", 0),
    "DH": ("ð", 0),
    "EH": ("ɛ", 3),
    "ER": ("ɜɹ", 3),
    "EY": ("A", 3),
    "F": ("f", 0),
    "G": ("ɡ", 0),
    "HH": ("h", 0),
    "IH": ("ɪ", 3),
    "IY": ("i", 3),
    "JH": ("ʤ", 0),
    "K": ("k", 0),
    "L": ("l", 0),
    "M": ("m", 0),
    "N": ("n", 0),
    "NG": ("ŋ", 0),
    "OW": ("O", 3),
    "OY": ("Y", 3),
    "P": ("p", 0),
    "R": ("ɹ", 0),
    "S": ("s", 0),
    "SH": ("ʃ", 0),
    "T": ("t", 0),
    "TH": ("θ", 0),
    "UH": ("ʊ", 3),
    "UW": ("u", 4),
    "V": ("v", 0),
    "W": ("w", 0),
    "Y": ("j", 0),
    "Z": ("z", 0),
    "ZH": ("ʒ", 0),
}
"""CMUdict's phonemes in the order of the network's output → Kokoro's, and how many variants there are: stresses 0, 1 and 2.

UW also comes without a stress, before the others.
"""
_WEAK: Final = {"ʌ": "ə", "ɜɹ": "əɹ"}
_MARKS: Final = {0: "", 1: "ˈ", 2: "ˌ"}
_BRITISH: Final = str.maketrans({"O": "Q", "æ": "a"})


def _outputs() -> list[str]:
    found: list[str] = []
    for symbol, variants in _PHONEMES.values():
        if not variants:
            found.append(symbol)
            continue
        stresses = [0, 0, 1, 2] if variants > 3 else [0, 1, 2]
        found += [_MARKS[stress] + (symbol if stress else _WEAK.get(symbol, symbol)) for stress in stresses]
    return found


_OUTPUTS: Final = _outputs()
Weights = dict[str, Any]


class SpellingModel:
    """The network."""

    def __init__(self, path: Path) -> None:
        """Read the weights; raises :class:`BrokenError` for other ones, or OSError."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                self._weights: Weights = {name: archive[name].astype(np.float32) for name in archive.files}
        except (ValueError, EOFError, zipfile.BadZipFile) as problem:
            raise BrokenError(f"{path.name} cannot be read") from problem
        w = self._weights
        try:
            size = w["enc_w_hh"].shape[1]
            shapes = {name: w[name].shape for name in w}
            letters, outputs = len(_LETTERS) + _FIRST_LETTER, len(_OUTPUTS) + _FIRST_PHONEME
            expected: dict[str, tuple[int, ...]] = {"fc_w": (outputs, size), "fc_b": (outputs,)}
            for side, symbols in (("enc", letters), ("dec", outputs)):
                width = w[f"{side}_emb"].shape[1]
                expected |= {f"{side}_emb": (symbols, width)}
                expected |= {f"{side}_w_ih": (3 * size, width), f"{side}_w_hh": (3 * size, size)}
                expected |= {f"{side}_b_ih": (3 * size,), f"{side}_b_hh": (3 * size,)}
        except (KeyError, IndexError):
            raise BrokenError(f"{path.name} has other weights") from None
        if any(shapes.get(name) != shape for name, shape in expected.items()):
            raise BrokenError(f"{path.name} has weights of other sizes")
        self._size = size

    def pronounce(self, word: str, *, british: bool = False) -> str:
        """Return the phonemes of a word of letters a to z."""
        state = np.zeros(self._size, np.float32)
        for letter in word.lower()[:MAX_LETTERS]:
            place = _LETTERS.find(letter)
            state = self._step("enc", place + _FIRST_LETTER if place >= 0 else _UNKNOWN, state)
        state = self._step("enc", _END_OF_WORD, state)
        found: list[str] = []
        last = _BEGIN
        for _ in range(_MAX_PHONEMES):
            state = self._step("dec", last, state)
            last = int((self._weights["fc_w"] @ state + self._weights["fc_b"]).argmax())
            if last == _END:
                break
            if last >= _FIRST_PHONEME:
                found.append(_OUTPUTS[last - _FIRST_PHONEME])
        spoken = "".join(found)
        return spoken.translate(_BRITISH) if british else spoken

    def _step(self, side: str, number: int, state: Any) -> Any:
        """Return the next state of a layer of gated recurrent units: gates r and z, and the new part n."""
        w, size = self._weights, self._size
        given = w[f"{side}_w_ih"] @ w[f"{side}_emb"][number] + w[f"{side}_b_ih"]
        kept = w[f"{side}_w_hh"] @ state + w[f"{side}_b_hh"]
        reset, update = np.split(1 / (1 + np.exp(-(given[: 2 * size] + kept[: 2 * size]))), 2)
        new = np.tanh(given[2 * size :] + reset * kept[2 * size :])
        return (1 - update) * new + update * state
