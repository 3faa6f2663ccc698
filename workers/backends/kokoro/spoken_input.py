"""What of a text a voice speaks: the letters of its language's scripts, and no markup. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

LANGUAGES: Final = {
    "a": "American English",
    "b": "British English",
    "e": "Spanish",
    "f": "French",
    "h": "Hindi",
    "i": "Italian",
    "j": "Japanese",
    "p": "Portuguese",
    "z": "Chinese",
}
"""First letter of a voice's name → its language."""
_SCRIPTS: Final = {"h": ("LATIN", "DEVANAGARI"), "j": (), "z": ()}
"""Language → the scripts of its letters, as Unicode names them: of the others Latin; empty: any."""
_SHOWN: Final = {"CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean"}
_NO_SCRIPTS: Final = ("COMBINING", "ENCLOSING", "MODIFIER", "VARIATION")
"""First words of the names of marks that belong to no script, such as those of emojis."""
_MICRO: Final = "μ"
_TAG: Final = re.compile(
    r"</?[A-Za-z][\w:.-]{0,40}(?:\s{1,10}[\w:.-]{1,40}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}')){0,10}\s{0,10}/?>"
)


class InputError(ValueError):
    """A text of which nothing can be spoken. The text is for clients."""


def without_markup(text: str) -> str:
    """Return the text without the tags of SSML and HTML, and without control characters."""
    return _TAG.sub(" ", text).translate({code: " " for code in map(ord, set(text)) if _is_control(chr(code))})


def spoken_letters(text: str, language: str) -> str:
    """Return the text without the letters that voices of a language do not speak."""
    return text.translate({ord(letter): None for letter in set(text) if _foreign_script(letter, language)})


def unspoken(text: str, language: str) -> list[str]:
    """Return what voices of a language leave out, in sentences for the client; raises :class:`InputError` if they leave out all of it."""
    found = []
    if scripts := sorted({_foreign_script(letter, language) for letter in set(text)} - {""}):
        named = f"letters of the script {' and '.join(scripts)}"
        limit = f"the voice speaks {LANGUAGES.get(language, 'another language')}"
        if not any(map(str.isalnum, spoken_letters(without_markup(text), language))):
            raise InputError(f"`input` has only {named}, but {limit}: choose a voice of its language")
        found.append(f"`input` has {named}, which are left out: {limit}")
    if _TAG.search(text):
        found.append("tags in `input`, such as those of SSML, have no effect")
    return found


def _is_control(letter: str) -> bool:
    return letter not in "\n\t" and unicodedata.category(letter) == "Cc"


def _foreign_script(letter: str, language: str) -> str:
    """Return the script of a letter that voices of this language do not speak; empty for all that they do, or that is none."""
    scripts = _SCRIPTS.get(language, ("LATIN",))
    if letter.isascii() or not scripts:
        return ""
    plain = unicodedata.normalize("NFKC", letter)[:1]
    if not plain.isalpha() and not unicodedata.category(plain).startswith("M"):
        return ""
    script = unicodedata.name(plain, "").partition(" ")[0]
    if not script or script in scripts or script in _NO_SCRIPTS or plain == _MICRO:
        return ""
    return _SHOWN.get(script, script.title())
