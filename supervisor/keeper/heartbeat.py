"""How long a supervisor has been silent. Pure: the times are handed in."""

from __future__ import annotations

SILENCE_S = 10.0
"""A supervisor that was silent for so long is stopped or stuck."""
STARTUP_SILENCE_S = 120.0
"""Between its first word and its first heartbeat it reads its files, which takes long on a busy machine."""
FRESH_S = 3.0
"""A heartbeat of this age says that all is well."""
MAX_STEP_S = 2.0
"""A longer time between two looks says that the keeper itself was stopped; then the rest proves nothing."""


class Heartbeat:
    """The heartbeat of one supervisor. Only time in which the keeper itself ran counts as silence."""

    def __init__(self, now: float) -> None:
        """``now``: when the supervisor was started."""
        self._looked = now
        self._silence = 0.0
        self.watched = 0.0
        """Seconds since its start."""
        self._limit = SILENCE_S
        self._beats = False

    def begin(self) -> None:
        """Note that it was forked, which takes a moment: a fork server that takes longer is stopped."""
        self._silence = 0.0
        self._limit = STARTUP_SILENCE_S

    def beat(self) -> None:
        """Note a sign of life."""
        self._silence = 0.0
        self._limit = SILENCE_S
        self._beats = True

    def look(self, now: float) -> None:
        """Let time pass. To be called about once a second, after all that was sent is read."""
        passed = min(now - self._looked, MAX_STEP_S)
        self._silence += passed
        self.watched += passed
        self._looked = now

    @property
    def fresh(self) -> bool:
        """Whether the supervisor's loop turns."""
        return self._beats and self._silence <= FRESH_S

    @property
    def lost(self) -> bool:
        """Whether the supervisor has to be replaced."""
        return self._silence >= self._limit
