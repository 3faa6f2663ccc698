"""How long a supervisor has been silent. Pure: times are arguments."""

from __future__ import annotations

from supervisor.keeper.process_states import SupervisorState

SILENCE_S = 10.0
"""A supervisor that is silent for this long is stopped or stuck."""
STARTUP_SILENCE_S = 120.0
"""The same between its first word and its first heartbeat: it reads its files, which takes long on a busy machine."""
FRESH_S = 3.0
"""The greatest age of a heartbeat that still shows that all is well."""
MAX_STEP_S = 2.0
"""A longer time between two looks means that the keeper itself was stopped. Then only this much of it counts as silence."""

_BEFORE_THE_FIRST = frozenset({SupervisorState.ORDERED, SupervisorState.STARTING})
"""States before the first heartbeat. A fork takes a moment: a fork server that takes longer is stopped."""


class Heartbeat:
    """The heartbeat of one supervisor. Only time in which the keeper itself ran counts as silence."""

    def __init__(self, now: float) -> None:
        """``now``: when the supervisor was ordered."""
        self._looked = now
        self._silence = 0.0
        self.watched = 0.0
        """For how many seconds it has been watched; time in which the keeper was stopped does not count."""

    def beat(self) -> None:
        """Note a sign of life."""
        self._silence = 0.0

    def look(self, now: float) -> None:
        """Let time pass. To be called about once a second, after everything that was sent has been read."""
        passed = min(now - self._looked, MAX_STEP_S)
        self._silence += passed
        self.watched += passed
        self._looked = now

    def is_fresh(self, state: SupervisorState) -> bool:
        """Return whether the loop of a supervisor in this state is running."""
        return state not in _BEFORE_THE_FIRST and self._silence <= FRESH_S

    def is_lost(self, state: SupervisorState) -> bool:
        """Return whether a supervisor in this state must be replaced."""
        return self._silence >= (STARTUP_SILENCE_S if state is SupervisorState.STARTING else SILENCE_S)
