"""Finds stop words in text that comes in pieces: a possible beginning of one is held back. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class StopWordFilter:
    """Cuts one answer off before its first stop word."""

    def __init__(self, words: Sequence[str]) -> None:
        """``words``: all non-empty."""
        self._words = words
        self._held = ""
        self.found = ""
        """The word that ended the answer."""

    def feed(self, piece: str) -> str:
        """Take the next piece; return what may be sent. Not to be called after :attr:`found` is set."""
        if not self._words:
            return piece
        text = self._held + piece
        hits = [(index, word) for word in self._words if (index := text.find(word)) >= 0]
        if hits:
            index, self.found = min(hits)
            self._held = ""
            return text[:index]
        keep = max(_overlap(text, word) for word in self._words)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Return the text that was held back, after an answer without a stop word."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """Return how many characters at the end of a text may begin a word."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)
