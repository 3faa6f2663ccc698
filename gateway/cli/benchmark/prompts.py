"""Prompts of a wanted length that no engine has in its prompt cache. Pure, but for the random words."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

_TEXT: Final = (
    "the of and to in is that for it as was with be by on not he his but at are this have from which one had they you were"
    " all their there been many some time very when much new these two may then do first any my now such like our over man"
    " me even most made after also did before must through years where your way well down should because each just state"
    " people how too little good world make still see own work long both under never know same last while might great old"
    " year off come since against go came right used take three water light river stone paper window garden winter"
)
_WORDS: Final = _TEXT.split()


class PromptLength(NamedTuple):
    """How many tokens a number of words has in a prompt: ``fixed + each * words``. The fixed ones are the chat template's."""

    fixed: float
    each: float

    def words(self, tokens: int) -> int:
        """Return how many words a prompt of this number of tokens has, at least one."""
        return max(1, round((tokens - self.fixed) / self.each))


def measured_length(short: tuple[int, int], longer: tuple[int, int]) -> PromptLength:
    """Return the length of prompts, from the (words, tokens) of two of them."""
    (few, of_few), (many, of_many) = short, longer
    each = max((of_many - of_few) / (many - few), 0.1)
    return PromptLength(of_few - each * few, each)


def prompt(words: int) -> str:
    """Return random words. Already the first ones differ from those of every other prompt, so that no cache has its beginning."""
    chosen = random.SystemRandom().choices(_WORDS, k=words)
    return " ".join(chosen)
