"""English sentences in Kokoro's phonemes: which pronunciation a word has beside its neighbours, and what unknown words sound like. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final, NamedTuple

from workers.engine_servers.kokoro_server.lexicon import FINAL, VOWELS, Lexicon
from workers.engine_servers.kokoro_server.symbols import PAUSES

_TOKEN: Final = re.compile(r"[A-Za-z]{1,40}(?:'[A-Za-z]{1,40})*'?|[;:,.!?—…\"“”()]|\s+")
_LETTERS: Final = str.maketrans(
    {
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "th",
        "þ": "th",
        "ı": "i",
        "ẞ": "SS",
        "Æ": "AE",
        "Œ": "OE",
        "Ø": "O",
        "Ł": "L",
        "Đ": "D",
        "Ð": "TH",
        "Þ": "TH",
    }
)
"""Latin letters that are more than one of ours with an accent."""
_FOLLOWERS: Final = {
    "VERB": "to will would can could shall should may might must i you we they who don't didn't doesn't won't can't not "
    "please let's did do does",
    "NOUN": "a an the this that these those my your his her its our their no some any each every of for with",
    "VBN": "have has had was were been be is are having got i've we've you've they've",
}
"""Role of a word, as the dictionaries name it → the words that it often follows."""
_ROLE_AFTER: Final = {word: role for role, words in _FOLLOWERS.items() for word in words.split()}
_MAX_INITIALS: Final = 5
"""Letters of a word in capitals that is read letter by letter if no dictionary has it."""
_LEAST_PART: Final = 3
"""Letters of each part of a compound."""

Pronounce = Callable[[str], str]
"""Returns the phonemes of a word that no dictionary has."""


class _Context(NamedTuple):
    """What is known of the words beside one."""

    before: str
    """The word before it in lower case; empty at the beginning and after a pause."""
    after: str
    next_sound: str
    """The first sound of the word after it; empty before a pause."""
    shouted: bool
    """Whether all words of the sentence are in capitals."""


def phonemize(sentence: str, lexicon: Lexicon, pronounce: Pronounce) -> str:
    """Return the phonemes of a sentence that consists of words and pauses."""
    plain = "".join(c for c in unicodedata.normalize("NFD", sentence) if not unicodedata.combining(c))
    tokens = _TOKEN.findall(plain.translate(_LETTERS).replace("-", " "))
    words = [token for token in tokens if token[0].isalpha()]
    shouted = len(words) > 2 and all(word.isupper() for word in words)
    found: list[str] = []
    after = next_sound = ""
    for index in range(len(tokens) - 1, -1, -1):
        token = tokens[index]
        if token.isspace():
            found.append(" ")
        elif not token[0].isalpha():
            found.append(token)
            if token in PAUSES:
                after = next_sound = ""
        else:
            before = _word_before(tokens, index)
            spoken = _spoken(token, _Context(before, after, next_sound, shouted), lexicon, pronounce)
            found.append(spoken)
            after = token.lower()
            next_sound = next((symbol for symbol in spoken if symbol not in "ˈˌ"), next_sound)
    # Version 1.0 of the model was trained with these symbols for two sounds of the dictionaries.
    return "".join(reversed(found)).replace("ɾ", "T").replace("ʔ", "t").strip()


def _word_before(tokens: list[str], index: int) -> str:
    while index > 0 and (tokens[index - 1].isspace() or tokens[index - 1] in '"“”()'):
        index -= 1
    before = tokens[index - 1] if index > 0 else ""
    return before.lower() if before[:1].isalpha() else ""


def _spoken(word: str, context: _Context, lexicon: Lexicon, pronounce: Pronounce) -> str:
    lowered = word.lower()
    weak = _weak_form(word, lowered, context)
    if weak:
        return weak
    roles = (*(() if context.next_sound else (FINAL,)), _ROLE_AFTER.get(context.before, ""))
    if word.isupper() and len(word) > 1 and not context.shouted:
        initials = lexicon.is_initials(word) or (lexicon.find(word, *roles) is None and len(word) <= _MAX_INITIALS)
        if initials:
            return lexicon.spelled(word)
    bare = word.removesuffix("'")
    return (
        lexicon.find(word, *roles)
        or lexicon.find(bare, *roles)
        or _compound(bare, lexicon)
        or _unknown(bare, lexicon, pronounce)
    )


def _weak_form(word: str, lowered: str, context: _Context) -> str:
    """Return how a short word sounds within a sentence, where dictionaries have its full form; empty for other words."""
    vowel = context.next_sound in VOWELS and bool(context.next_sound)
    if lowered == "a" and context.next_sound and (word == "a" or not context.before):
        return "ɐ"
    if lowered == "an":
        return "ɐn"
    if lowered == "the":
        return "ði" if vowel else "ðə"
    if lowered == "to" and context.next_sound:
        return "tʊ" if vowel else "tə"
    if word == "I":
        return "ˌI"
    if lowered == "used" and context.after == "to":
        return "jˈust"
    return ""


def _compound(word: str, lexicon: Lexicon) -> str:
    """Return the phonemes of a word that consists of two known ones, the longest first; empty if it does not."""
    for cut in range(len(word) - _LEAST_PART, _LEAST_PART - 1, -1):
        first, second = lexicon.find(word[:cut]), lexicon.find(word[cut:])
        if first and second:
            return first + second.replace("ˈ", "ˌ")
    return ""


def _unknown(word: str, lexicon: Lexicon, pronounce: Pronounce) -> str:
    """Return the phonemes of a word that no dictionary has: of each part if it has capitals within, as ``iPhone``."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word)
    if len(parts) < 2:
        return pronounce(word)
    return "".join(
        lexicon.spelled(part) if part.isupper() or len(part) == 1 else lexicon.find(part) or pronounce(part)
        for part in parts
    )
