"""When to read streams together instead of waking for every piece of each: only while very many arrive. Pure.

A fast engine with many streams writes each token of each stream to its own socket. Each token wakes this process, then
a gateway, then a client: on few processors, the switching costs more than the tokens. Then the streams are read
together at each tick of a timer, which is short compared with the time between two tokens of one stream. A stream that
has not shown its first token is never delayed; nor are streams of a slower engine.
"""

from __future__ import annotations

from typing import Final

MIN_TICK_S: Final = 0.001
MAX_TICK_S: Final = 0.004
TICK_SHARE: Final = 0.4
"""The length of a tick, as a fraction of the time between two tokens of a stream."""
MIN_STREAMS: Final = 4
"""With fewer streams than this, a tick is not worthwhile."""
WINDOW: Final = 64
"""How many pieces (before) or ticks (while ticking) are counted for each decision."""
BUSY_WINDOW_S: Final = 0.03
"""If a window of pieces arrives within this time (two thousand a second), waking for each is too expensive."""
MIN_PIECES_PER_TICK: Final = 1.0
"""With fewer pieces per tick than this, waking for each piece is cheaper again."""


class ReadBatchingPolicy:
    """Counts pieces, and decides whether to tick."""

    def __init__(self) -> None:
        """Start without ticks."""
        self.ticking = False
        self.pause = MIN_TICK_S
        """Seconds until the next tick."""
        self._pieces = 0
        self._ticks = 0
        self._since = 0.0

    def count_piece(self, now: float) -> bool:
        """Count a piece of a stream; return whether to begin ticking."""
        self._pieces += 1
        if self.ticking or self._pieces < WINDOW:
            return False
        self.ticking = now - self._since < BUSY_WINDOW_S
        self._begin_window(now)
        return self.ticking

    def count_tick(self, now: float, streams: int) -> bool:
        """Count a tick at which ``streams`` streams were read; return whether to go on ticking."""
        self._ticks += 1
        if self._ticks >= WINDOW:
            self.ticking = self._pieces >= MIN_PIECES_PER_TICK * self._ticks
            token_interval = (now - self._since) * streams / max(1, self._pieces)
            self.pause = min(MAX_TICK_S, max(MIN_TICK_S, TICK_SHARE * token_interval))
            self._begin_window(now)
        return self.ticking

    def _begin_window(self, now: float) -> None:
        self._pieces = self._ticks = 0
        self._since = now
