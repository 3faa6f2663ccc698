"""OpenAI's presence and frequency penalties, which the library lacks: they lower the scores of used tokens. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np


class TokenPenalties:
    """The penalties of one answer, and the tokens it has used."""

    def __init__(self, presence: float, frequency: float) -> None:
        """``presence`` is subtracted once for a used token, ``frequency`` once for each use."""
        self._presence, self._frequency = presence, frequency
        self._uses: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Return whether any score changes."""
        return bool(self._presence or self._frequency)

    def count(self, token: int) -> None:
        """Note that the answer has used a token."""
        if self:
            self._uses[token] = self._uses.get(token, 0) + 1

    def applied_to(self, scores: Any) -> Any:
        """Return the scores of the whole vocabulary (last axis) after the penalties, as a new array."""
        lowered = np.array(scores, dtype=np.float32)
        for token, uses in self._uses.items():
            lowered[..., token] -= self._presence + self._frequency * uses
        return lowered
