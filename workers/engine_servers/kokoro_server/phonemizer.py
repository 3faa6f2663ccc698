"""From a text to pieces of phonemes that the model can speak: sentence by sentence, in the language of the voice.

English has the dictionaries of the model's folder, and for words beyond them the network of :mod:`spelling`, or their letters.
Without dictionaries, and for other languages, there is espeak-ng.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workers.backends.kokoro.spoken_input import spoken_letters, without_markup
from workers.engine_servers.kokoro_server.english import phonemize
from workers.engine_servers.kokoro_server.espeak import LANGUAGES, Espeak
from workers.engine_servers.kokoro_server.lexicon import AMERICAN, BRITISH, GOLD, Lexicon
from workers.engine_servers.kokoro_server.spelling import SpellingModel
from workers.engine_servers.kokoro_server.spoken_text import spoken_english
from workers.engine_servers.kokoro_server.symbols import PAUSES, numbers_of

SPELLING_FILE: Final = "spelling.npz"
FIRST_PIECE: Final = 80
"""Phonemes of the first piece, which the client waits for."""
PIECE: Final = 160
"""Phonemes of a piece. The model's time and memory for a piece grow faster than its length; a much shorter one sounds hurried."""
_DIGIT_LENGTH: Final = 8
"""Characters for each digit in a text whose numbers espeak-ng reads."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…;:])[\"”')]*\s+|\n+")
_ENGLISH: Final = {"a": AMERICAN, "b": BRITISH}


class LanguageError(Exception):
    """The language of a voice cannot be spoken here. The text is for clients."""


class TooLongError(Exception):
    """A text has too many characters, counted as they are spoken."""

    def __init__(self, length: int) -> None:
        """``length``: how many it has."""
        super().__init__(f"{length} characters")
        self.length = length


class Phonemizer:
    """Texts in the languages of the model's voices."""

    def __init__(self, folder: Path, espeak: str) -> None:
        """Read the dictionaries in ``folder``, if there are any; ``espeak``: the path of espeak-ng, empty if it is missing.

        Raises :class:`~workers.files.errors.BrokenError` or OSError for a broken file, :class:`LanguageError` if there is neither.
        """
        self._folder = folder
        self._espeak = Espeak(espeak) if espeak else None
        spelling = folder / SPELLING_FILE
        self._spelling = SpellingModel(spelling) if spelling.is_file() else None
        self._lexicons: dict[str, Lexicon] = {}
        if not self._lexicon(AMERICAN) and self._espeak is None:
            raise LanguageError(
                "there is neither a dictionary of pronunciations (us_gold.json of the package misaki, in the folder "
                "`lexicon` beside the model) nor the program espeak-ng"
            )

    def _lexicon(self, kind: str) -> Lexicon | None:
        if kind not in self._lexicons and (self._folder / GOLD.format(kind)).is_file():
            self._lexicons[kind] = Lexicon(self._folder, kind)
        return self._lexicons.get(kind)

    def pieces(self, text: str, language: str, most: float = math.inf) -> Iterator[str]:
        """Yield the phonemes of a text, piece by piece; raises :class:`LanguageError`, or ``EspeakError`` on the way.

        ``language``: the first letter of the voice's name. A text with more than ``most`` characters when all its numbers are words
        raises :class:`TooLongError`.
        """
        english = _ENGLISH.get(language)
        lexicon = (self._lexicon(english) or self._lexicon(AMERICAN)) if english else None
        if language not in LANGUAGES:
            raise LanguageError("voices of Japanese and Chinese are not supported: no phonemes for them are known here")
        if lexicon is None and self._espeak is None:
            raise LanguageError("voices of this language need the program espeak-ng (`apt-get install espeak-ng`)")
        text = spoken_letters(without_markup(text), language)
        spoken = spoken_english(text, british=english == BRITISH) if english else text
        length = len(spoken) + _DIGIT_LENGTH * sum(map(str.isdigit, spoken))
        if length > most:
            raise TooLongError(length)
        sentences = (
            self._phonemes(sentence, language, lexicon) for sentence in _SENTENCE_END.split(spoken) if sentence
        )
        yield from joined(sentences)

    def _phonemes(self, sentence: str, language: str, lexicon: Lexicon | None) -> str:
        if lexicon is not None:
            return phonemize(sentence, lexicon, lambda word: self._unknown(word, lexicon))
        return self._espeak.phonemize(sentence, language) if self._espeak else ""

    def _unknown(self, word: str, lexicon: Lexicon) -> str:
        if self._spelling is not None:
            return self._spelling.pronounce(word.replace("'", ""), british=lexicon.british)
        return lexicon.spelled(word)


def joined(sentences: Iterator[str]) -> Iterator[str]:
    """Yield pieces of phonemes: short sentences together, long ones cut at a pause, or else between words. Pure."""
    waiting, most = "", FIRST_PIECE
    for sentence in sentences:
        if not numbers_of(sentence.strip(PAUSES + " ")):
            continue
        whole = f"{waiting} {sentence}" if waiting else sentence
        if waiting and len(whole) > most:
            yield waiting
            most, whole = PIECE, sentence
        while len(whole) > most:
            cut = _cut(whole, most)
            yield whole[:cut].strip()
            whole, most = whole[cut:].strip(), PIECE
        waiting = whole
    if waiting:
        yield waiting


def _cut(phonemes: str, most: int) -> int:
    """Return where to cut: after the last pause of the first ``most`` symbols, else after their last word, else there."""
    pause = max(phonemes.rfind(mark, most // 3, most) for mark in PAUSES)
    if pause >= 0:
        return pause + 1
    space = phonemes.rfind(" ", 1, most)
    return space if space > 0 else most
