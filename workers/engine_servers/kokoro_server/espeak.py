"""Phonemes of other languages than English by the program espeak-ng, translated to Kokoro's symbols.

espeak-ng has the GPL, so it is neither linked nor contained: it is a separate program that the machine may have. It gets the text
on its standard input, without a shell.
"""

from __future__ import annotations

import re
import subprocess
from typing import Final

from workers.engine_servers.kokoro_server.symbols import SYMBOLS

TIMEOUT_S: Final = 10.0
MAX_CLAUSE_LENGTH: Final = 1_000
"""Characters that the program gets at once."""
LANGUAGES: Final = {
    "a": "en-us",
    "b": "en-gb",
    "e": "es",
    "f": "fr-fr",
    "h": "hi",
    "i": "it",
    "p": "pt-br",
}
"""First letter of a voice's name → espeak-ng's name of its language."""
_PAUSE: Final = re.compile(r"((?:[;:,.!?—…](?!\d)|(?<!\d)[;:,.!?—…])+)")
"""Not a mark between two digits, which belongs to the number or time."""
_SWITCH: Final = re.compile(r"\([a-z\u0361-]{2,16}\)")
"""espeak-ng's mark of a word in another language, with its ties: ``(͡e͡n)``."""
_BOTH: Final = (
    ("t͡ʃ", "ʧ"),
    ("d͡ʒ", "ʤ"),
    ("t͡s", "ʦ"),
    ("d͡z", "ʣ"),
    ("t͡ɕ", "ʨ"),
    ("͡", ""),
    ("g", "ɡ"),
    ("ɬ", "l"),
    ("ɫ", "l"),
)
_ENGLISH: Final = (
    ("aɪ", "I"),
    ("aʊ", "W"),
    ("eɪ", "A"),
    ("ɔɪ", "Y"),
    ("oʊ", "O"),
    ("əʊ", "Q"),
    ("ɚ", "əɹ"),
    ("ɝ", "ɜɹ"),
    ("r", "ɹ"),
    ("x", "k"),
    ("ɐ", "ə"),
    ("e", "A"),
)
_AMERICAN: Final = (("ɜː", "ɜɹ"), ("ː", ""), ("o", "ɔ"), ("ɾ", "T"), ("ʔ", "t"))


class EspeakError(Exception):
    """The program failed. The text is for clients."""


class Espeak:
    """The program."""

    def __init__(self, program: str) -> None:
        """Run ``program``, a path."""
        self._program = program

    def phonemize(self, text: str, language: str) -> str:
        """Return the phonemes of a text, in the language with this letter; raises :class:`EspeakError`."""
        parts = _PAUSE.split(text)
        return "".join(
            part[:1] + " " if place % 2 else self._clause(part.strip(), language) for place, part in enumerate(parts)
        ).strip()

    def _clause(self, clause: str, language: str) -> str:
        if not clause:
            return ""
        pieces = [clause[at : at + MAX_CLAUSE_LENGTH] for at in range(0, len(clause), MAX_CLAUSE_LENGTH)]
        return " ".join(self._run(piece, language) for piece in pieces)

    def _run(self, text: str, language: str) -> str:
        words = [self._program, "-q", "--ipa", "--tie=͡", "-v", LANGUAGES[language], "--stdin"]
        try:
            done = subprocess.run(
                words,
                input=text.encode(),
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
                env={"LC_ALL": "C.UTF-8"},
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise EspeakError(f"espeak-ng failed: {type(problem).__name__}") from problem
        if done.returncode:
            raise EspeakError(f"espeak-ng failed with exit code {done.returncode}")
        return translated(" ".join(done.stdout.decode("utf-8", "replace").split()), language)


def translated(ipa: str, language: str) -> str:
    """Return espeak-ng's phonemes in Kokoro's symbols. Pure."""
    ipa = _SWITCH.sub("", ipa)
    for theirs, ours in _BOTH + (_ENGLISH if language in "ab" else ()) + (_AMERICAN if language == "a" else ()):
        ipa = ipa.replace(theirs, ours)
    return "".join(symbol for symbol in ipa if symbol in SYMBOLS).strip()
