"""The pronunciation of English words in Kokoro's phonemes: two dictionaries, and the endings of words. Reads only its files.

The dictionaries are those of the package misaki, ``us_gold.json`` (checked by people) and ``us_silver.json``, or ``gb_…``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS
from workers.files.errors import BrokenError

Entry = str | dict[str, str | None]
"""Phonemes, or phonemes by the word's role in the sentence; None: its letters are spelled."""

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
AMERICAN, BRITISH = "us", "gb"
GOLD: Final = "{}_gold.json"
SILVER: Final = "{}_silver.json"
DEFAULT: Final = "DEFAULT"
FINAL: Final = "None"
"""The role of a word before a pause."""
VOWELS: Final = frozenset("AIOQWYaiuæɑɒɔəɛɜɪʊʌᵻᵊɐ")
_UNVOICED: Final = frozenset("ptkfθ")
_HISSING: Final = frozenset("szʃʒʧʤ")
_DOUBLED: Final = re.compile(r"([bdgklmnprtvz])\1$")
_STRESSES: Final = "ˈˌ"
_PRONUNCIATIONS: Final = msgspec.json.Decoder(dict[str, Entry])


class Lexicon:
    """The words of one kind of English."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Read the dictionaries; raises :class:`BrokenError` for a broken one, or OSError. The second one may be missing."""
        self.british = kind == BRITISH
        self._gold = _read(folder / GOLD.format(kind))
        silver = folder / SILVER.format(kind)
        self._silver = _read(silver) if silver.is_file() else {}

    def find(self, word: str, *roles: str) -> str | None:
        """Return the phonemes of a word, or of a known word with an ending; None for an unknown one.

        ``roles``: those that it may have in its sentence, the likeliest first.
        """
        return self._entry(word, *roles) or self._inflected(word, roles)

    def spelled(self, letters: str) -> str:
        """Return the phonemes of the names of letters: all but the last with a lesser stress."""
        found = [self._entry(letter.upper()) or "" for letter in letters]
        names = [name for name in found if name]
        return "".join([*(name.replace("ˈ", "ˌ") for name in names[:-1]), *names[-1:]])

    def is_initials(self, word: str) -> bool:
        """Return whether the dictionaries say that a word in capitals, used as a name, is spelled: ``US``."""
        entry = self._gold.get(word)
        return isinstance(entry, dict) and entry.get("NOUN", "") is None

    def _entry(self, word: str, *roles: str) -> str | None:
        for form in dict.fromkeys((word, word.lower(), word.capitalize())):
            entry = self._gold.get(form) or self._silver.get(form)
            if isinstance(entry, dict):
                entry = next(filter(None, map(entry.get, (*roles, DEFAULT))), None)
            if entry:
                return entry
        return None

    def _inflected(self, word: str, roles: tuple[str, ...]) -> str | None:
        """Return the phonemes of ``cat's``, ``cats``, ``walked``, ``walking`` and the like, if the word without its ending is known."""
        lowered = word.lower()
        if lowered.endswith("'s") or (lowered.endswith("s'") and len(word) > 3):
            stem = self._entry(word[:-2], *roles) or self._entry(word[:-1], *roles)
            return stem and self._with_s(stem)
        if lowered.endswith("s") and len(word) > 3 and not lowered.endswith("ss"):
            stem = self._stem(word[:-1], word[:-2] if lowered.endswith("es") else "", roles)
            if stem is None and lowered.endswith("ies"):
                stem = self._entry(word[:-3] + "y", *roles)
            return stem and self._with_s(stem)
        if lowered.endswith("ed") and len(word) > 4:
            stem = self._stem(word[:-2], word[:-1], roles)
            return stem and self._with_d(stem)
        if lowered.endswith("ing") and len(word) > 5:
            stem = self._stem(word[:-3], word[:-3] + "e", roles)
            return stem and f"{_flapped(stem) if not self.british else stem}ɪŋ"
        return None

    def _stem(self, word: str, other: str, roles: tuple[str, ...]) -> str | None:
        found = self._entry(word, *roles) or (self._entry(other, *roles) if other else None)
        return found or (self._entry(word[:-1], *roles) if _DOUBLED.search(word) else None)

    def _with_s(self, stem: str) -> str:
        if stem[-1] in _HISSING:
            return f"{stem}{self._weak}z"
        return stem + ("s" if stem[-1] in _UNVOICED else "z")

    def _with_d(self, stem: str) -> str:
        if stem[-1] in "td":
            return f"{_flapped(stem) if not self.british else stem}{self._weak}d"
        return stem + ("t" if stem[-1] in _UNVOICED | {"s", "ʃ", "ʧ"} else "d")

    @property
    def _weak(self) -> str:
        return "ɪ" if self.british else "ᵻ"


def _flapped(stem: str) -> str:
    """Return an American stem before a vowel: its last t between vowels sounds like a quick d."""
    return f"{stem[:-1]}ɾ" if stem.endswith("t") and stem[-2:-1] in VOWELS else stem


def _read(path: Path) -> dict[str, Entry]:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise BrokenError(f"{path.name} is too large")
    try:
        return _PRONUNCIATIONS.decode(data)
    except DECODE_ERRORS:
        raise BrokenError(f"{path.name} is not a dictionary of pronunciations") from None
