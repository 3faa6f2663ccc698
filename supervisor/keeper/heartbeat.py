"""How long a supervisor has been silent. Pure: times are arguments."""

from __future__ import annotations

SILENCE_S = 10.0
"""A supervisor that is silent for this long is stopped or stuck."""
STARTUP_SILENCE_S = 120.0
"""The same between its first word and its first heartbeat: it reads its files, which takes long on a busy machine."""
FRESH_S = 3.0
"""The greatest age of a heartbeat that still shows that all is well."""
MAX_STEP_S = 2.0
"""A longer time between two looks means that the keeper itself was stopped. Then the rest of it proves nothing."""


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
        """Note that it was forked. This takes a moment: a fork server that takes longer is stopped."""
        self._silence = 0.0
        self._limit = STARTUP_SILENCE_S

    def beat(self) -> None:
        """Note a sign of life."""
        self._silence = 0.0
        self._limit = SILENCE_S
        self._beats = True

    def look(self, now: float) -> None:
        """Let time pass. To be called about once a second, after everything that was sent has been read."""
        passed = min(now - self._looked, MAX_STEP_S)
        self._silence += passed
        self.watched += passed
        self._looked = now

    @property
    def fresh(self) -> bool:
        """Whether the supervisor's loop is running."""
        return self._beats and self._silence <= FRESH_S

    @property
    def lost(self) -> bool:
        """Whether the supervisor must be replaced."""
        return self._silence >= self._limit
