"""Decides when a supervisor is killed, and what follows its end: another one, now or later, or the end of the server. Pure."""

from __future__ import annotations

from supervisor.keeper.heartbeat import Heartbeat
from supervisor.keeper.process_states import TO_END, ServerState, SupervisorState
from supervisor.keeper.upgrade_steps import UNCONFIRMED, UpgradeEvent, UpgradeState

EARLY_S = 1.0
"""A supervisor that dies this early may die of something that its successor finds as well.

One that lived longer has served clients.
"""
MAX_EARLY_DEATHS = 10
"""This many early deaths in a row end the server."""
MAX_DEATHS_IN_SHUTDOWN = 3
"""This many supervisors in a row may die while they should end the server."""
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
EXIT_FAILED = 1
UPGRADE_TIMEOUT_S = 60.0
"""Time limit until the gateways of a new version's supervisor serve. The old ones accept no connections meanwhile."""

_BEFORE_SERVING = frozenset({SupervisorState.ORDERED, SupervisorState.STARTING, SupervisorState.RUNNING})


class SupervisorEnd:
    """How a supervisor ended."""

    def __init__(
        self,
        state: SupervisorState,
        status: int | None,
        lived: float,
        *,
        exit_code: int = 0,
        first: bool = False,
    ) -> None:
        """Note how it ended.

        ``state``: the one before its end. ``status``: as in ``subprocess``, None if unknown. ``lived``: seconds.
        ``exit_code``: what it announced when it left. ``first``: it was the first of this server.
        """
        self.state, self.status, self.lived = state, status, lived
        self.exit_code, self.first = exit_code, first

    def ends_server(self, server: ServerState) -> bool:
        """Return whether this was the orderly end of the server."""
        if self.state is SupervisorState.LEAVING_EARLY:
            return self.first or server in TO_END
        return self.state is SupervisorState.LEAVING


class Restart:
    """Start another supervisor in ``pause`` seconds."""

    def __init__(self, pause: float) -> None:
        """``pause``: 0 for at once."""
        self.pause = pause


class Exit:
    """End the server."""

    def __init__(self, code: int, *, gave_up: bool = False) -> None:
        """``code``: the exit code. ``gave_up``: supervisors died too early, too often."""
        self.code, self.gave_up = code, gave_up


class RestartPolicy:
    """Counts the early deaths in a row.

    After the first, another supervisor follows at once; then it takes longer and longer.
    """

    def __init__(self) -> None:
        """None has died yet."""
        self._early = 0
        self._deaths_in_shutdown = 0

    def after(self, end: SupervisorEnd, server: ServerState, *, planned: bool = False) -> Restart | Exit:
        """Return what to do now. ``planned``: this is not a death, because a successor is prepared."""
        if end.ends_server(server):
            return Exit(end.exit_code)
        if server in TO_END:
            # Its successor ends the server in an orderly way: streams still have the grace period.
            self._deaths_in_shutdown += 1
            if server is ServerState.ENDING or self._deaths_in_shutdown > MAX_DEATHS_IN_SHUTDOWN:
                return Exit(EXIT_FAILED)
            return Restart(0.0)
        if planned:
            return Restart(0.0)
        if end.first and end.state in _BEFORE_SERVING and end.status is not None and end.status > 0:
            return Exit(end.status)  # it has said why, and there is nothing to protect yet
        if end.lived >= EARLY_S:
            self._early = 0
            return Restart(0.0)
        self._early += 1
        if self._early >= MAX_EARLY_DEATHS:
            return Exit(EXIT_FAILED, gave_up=True)
        return Restart(min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._early - 2)) if self._early > 1 else 0.0)


def upgrade_event(upgrade: UpgradeState, end: SupervisorEnd, *, can_fork: bool) -> UpgradeEvent | None:
    """Return what the end of a supervisor is for an upgrade, None if it is nothing.

    ``can_fork``: the present fork server, which is the new release's during a takeover, still runs.
    """
    if upgrade in (UpgradeState.PREPARED, UpgradeState.HANDING_OVER):
        return UpgradeEvent.REPLACE
    if upgrade not in UNCONFIRMED:
        return None
    killed = end.state in _BEFORE_SERVING and end.status is not None and end.status < 0
    return UpgradeEvent.TRY_AGAIN if killed and can_fork and upgrade is UpgradeState.TAKING_OVER else UpgradeEvent.FAIL


def reason_to_kill(
    state: SupervisorState, heartbeat: Heartbeat, upgrade: UpgradeState, server: ServerState, *, overdue: bool
) -> str:
    """Return why the supervisor is to be killed, empty if it is not. ``overdue``: the time in which it had to end is over."""
    if heartbeat.is_lost(state):
        return "it was killed because it gave no sign of life"
    if upgrade in UNCONFIRMED and server not in TO_END and heartbeat.watched >= UPGRADE_TIMEOUT_S:
        return f"it was killed because its gateways did not serve within {UPGRADE_TIMEOUT_S:.0f} s"
    return "it was killed because it did not end when it was told to" if overdue else ""
