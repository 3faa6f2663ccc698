"""How many lines of one owner for one model are at the server at once, and when it is asked again. Pure.

The server refuses a line for which its model has no free slot. So the number follows the free slots: it grows by one after a
success, and falls to what still runs after a refusal. Then no further one is tried for a while.
"""

from __future__ import annotations

from typing import Final

MAX_AT_ONCE: Final = 32
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
"""How long a model that is always busy is left alone: slots that become free are used after this time at the latest."""
PROBE_S: Final = 2.0
"""After a refusal, a larger number is tried after this time."""


class Pace:
    """The lines of one owner for one model."""

    def __init__(self) -> None:
        """Begin with one at a time."""
        self.running = 0
        self.most = 1
        self.why = ""
        """Why it was refused last; empty after a success."""
        self._closed_until = self._probe_at = 0.0
        self._pause = FIRST_PAUSE_S

    def is_open(self, now: float) -> bool:
        """Return whether another line may be sent."""
        return self.running < self.most and now >= self._closed_until

    def sent(self) -> None:
        """Note that a line was sent."""
        self.running += 1

    def answered(self, now: float) -> None:
        """Note that a line has its result."""
        self.running -= 1
        self.why = ""
        self._pause = FIRST_PAUSE_S
        if now >= self._probe_at:
            self.most = min(MAX_AT_ONCE, self.most + 1)

    def refused(self, now: float, why: str = "") -> None:
        """Note that there was no free slot for a line."""
        self.running -= 1
        self.why = why
        self.most = max(1, self.running)
        self._probe_at = now + PROBE_S
        if not self.running:
            self.close(now, self._pause)
            self._pause = min(LONGEST_PAUSE_S, 2 * self._pause)

    def failed(self, now: float, pause: float, why: str = "") -> None:
        """Note that a line is to be sent again, after ``pause`` seconds at the earliest."""
        self.running -= 1
        self.why = why
        self.close(now, pause)

    def close(self, now: float, pause: float) -> None:
        """Send nothing for some seconds."""
        self._closed_until = max(self._closed_until, now + pause)
