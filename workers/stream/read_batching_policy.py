"""When to stop waking for every piece of every stream: only while very many come. Pure.

A fast engine with many streams writes each token of each stream to a socket of its own, and each would wake this
process, then a gateway, then a client: on few processors the switching costs more than the tokens.  Then the
streams are read together, in ticks that are short beside the time between two tokens of one stream.  Streams that
have not shown their first token are never made to wait, nor are those of an engine that is no faster than that.
"""

from __future__ import annotations

from typing import Final

MIN_TICK_S: Final = 0.001
MAX_TICK_S: Final = 0.004
TICK_SHARE: Final = 0.4
"""A tick's part of the time between two tokens of a stream."""
MIN_STREAMS: Final = 4
"""Streams that are worth a tick."""
WINDOW: Final = 64
"""Pieces, or ticks, that are looked at before the mind is made up anew."""
BUSY_WINDOW_S: Final = 0.03
"""So many pieces within this time (two thousand a second) are too many to wake for."""
MIN_PIECES_PER_TICK: Final = 1.0
"""Pieces a tick below which waking for each is cheaper again."""


class ReadBatchingPolicy:
    """Counts pieces, and says whether to read in ticks."""

    def __init__(self) -> None:
        """Wake for each."""
        self.ticking = False
        self.pause = MIN_TICK_S
        """Seconds until the next tick."""
        self._pieces = 0
        self._ticks = 0
        self._since = 0.0

    def piece(self, now: float) -> bool:
        """A piece of a stream came; return whether to begin to tick."""
        self._pieces += 1
        if self.ticking or self._pieces < WINDOW:
            return False
        self.ticking = now - self._since < BUSY_WINDOW_S
        self._begin(now)
        return self.ticking

    def tick(self, now: float, streams: int) -> bool:
        """A tick of so many streams has passed; return whether to go on ticking."""
        self._ticks += 1
        if self._ticks >= WINDOW:
            self.ticking = self._pieces >= MIN_PIECES_PER_TICK * self._ticks
            between = (now - self._since) * streams / max(1, self._pieces)
            self.pause = min(MAX_TICK_S, max(MIN_TICK_S, TICK_SHARE * between))
            self._begin(now)
        return self.ticking

    def _begin(self, now: float) -> None:
        self._pieces = self._ticks = 0
        self._since = now
