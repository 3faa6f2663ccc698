"""Which replica of a model has read the beginning of a prompt before, so that its prompt cache has it. Pure.

A prompt is known by chained hashes over blocks of its bytes, as they stand in the request's body: two bodies whose first
hashes are the same begin with the same text. No tokenizer and no parser is needed, and a conversation that goes on has all
blocks of its last turn. An image or a long system prompt are bytes like all others. It is only a hint: an engine may have
dropped what it has read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

BLOCK: Final = 256
"""Bytes: about 60 tokens, less than what makes a difference."""
MAX_BLOCKS: Final = 512
"""Of a longer prompt, only this beginning is compared."""
MAX_KNOWN: Final = 16_384
"""Blocks that are remembered of one replica: 4 MiB of prompts."""
_BEGINNINGS: Final = (b'"messages":', b'"prompt":', b'"system":')


def prompt_prefixes(body: bytes) -> tuple[int, ...]:
    """Return a hash for each beginning of the prompt in a request's body, from one block on; empty if it has no prompt.

    In a text inside of JSON, the quotes of these names would be escaped, so the first match is a field.
    """
    beginning = min((at for name in _BEGINNINGS if (at := body.find(name)) >= 0), default=len(body))
    hashes, last = [], 0
    for at in range(beginning, min(len(body), beginning + MAX_BLOCKS * BLOCK) - BLOCK + 1, BLOCK):
        last = hash((last, body[at : at + BLOCK]))
        hashes.append(last)
    return tuple(hashes)


class KnownPrefixes:
    """The prompts that one replica has read, the latest :data:`MAX_KNOWN` blocks of them."""

    def __init__(self) -> None:
        """It has read nothing."""
        self._known: OrderedDict[int, None] = OrderedDict()

    def longest(self, prefixes: tuple[int, ...]) -> int:
        """Return how many blocks at the beginning of a prompt it has read."""
        known = self._known
        return next((count for count, each in enumerate(prefixes) if each not in known), len(prefixes))

    def learn(self, prefixes: tuple[int, ...]) -> None:
        """Note that it has read a prompt to its end."""
        for each in reversed(prefixes):  # the beginning is forgotten last: without it, the rest finds nothing
            self._known[each] = None
            self._known.move_to_end(each)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: its engine is gone."""
        self._known.clear()
