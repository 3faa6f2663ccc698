"""Stop words, found in text that comes piece by piece: what may be the beginning of one is held back. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class StopWordFilter:
    """Cuts one answer off before the first of its stop words."""

    def __init__(self, words: Sequence[str]) -> None:
        """``words`` are not empty ones."""
        self._words = words
        self._held = ""
        self.found = ""
        """The word that ended the answer."""

    def feed(self, piece: str) -> str:
        """Take the next piece; return what may be sent. After :attr:`found` nothing more may come."""
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
        """The answer has ended otherwise: return what was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """Return how many characters at the end of a text may begin a word."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)
