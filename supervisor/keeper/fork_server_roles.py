"""Which fork server forks the next supervisor: the present one, that of a new version, or the previous one again.

An upgrade starts a fork server from the code that is installed now. When it has imported everything, the supervisor
hands over to one that is forked from it. The old fork server stays until the new supervisor serves: if the new one
fails before that, the old version goes on.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from protocol.state_table import next_state
from supervisor.keeper.fork_server_process import ForkServerProcess
from supervisor.keeper.restart_policy import SupervisorEnd, upgrade_event
from supervisor.keeper.upgrade_steps import UNCONFIRMED, UPGRADE, UpgradeEvent, UpgradeState

PAUSE_S = 5.0
"""Least time between two starts of a fork server while a supervisor runs."""


class Role(enum.Enum):
    """What a fork server is for."""

    PRESENT = enum.auto()
    """It forks the next supervisor."""
    NEXT = enum.auto()
    """The new release's, until the supervisor that it replaces has ended."""
    FORMER = enum.auto()
    """That of the old version, until a supervisor of the new one serves."""


class ForkServers:
    """One fork server, or two during an upgrade, which takes the steps of the table `upgrade_steps.UPGRADE`."""

    def __init__(self, boot: str, command: Sequence[str]) -> None:
        """Start none yet."""
        self._boot, self._command = boot, command
        self._due = 0.0
        self._servers: dict[Role, ForkServerProcess] = {}
        self.upgrade = UpgradeState.NONE

    def __iter__(self) -> Iterator[ForkServerProcess]:
        """Iterate over those that run."""
        return iter(list(self._servers.values()))

    @property
    def present(self) -> ForkServerProcess | None:
        """The one that forks the next supervisor; None while it is missing."""
        return self._servers.get(Role.PRESENT)

    def start_missing(self, now: float, *, urgent: bool) -> None:
        """Start the present one if it is missing; raises OSError. ``urgent``: no supervisor runs."""
        if self.present is None and (urgent or now >= self._due):
            self._due = now + PAUSE_S
            self._servers[Role.PRESENT] = ForkServerProcess(self._boot, self._command, now)

    def read(self) -> None:
        """Read their messages."""
        for each in self:
            each.read()
        if self.upgrade is UpgradeState.IMPORTING and self._servers[Role.NEXT].can_fork:
            self._transition(UpgradeEvent.IMPORTED)

    def reaped(self, pid: int) -> Role | None:
        """Forget the one that has ended; return its role, or None if the pid belongs to none."""
        role = next((role for role, each in self._servers.items() if each.pid == pid), None)
        if role is not None:
            self._servers.pop(role).close()
            if role is Role.NEXT:
                self._transition(UpgradeEvent.FAIL)
            elif role is Role.FORMER:
                self._transition(UpgradeEvent.FORMER_ENDED)
        return role

    def kill_stuck(self, now: float) -> None:
        """Kill those that have been unable to fork for so long that another one should try."""
        for each in self:
            if each.is_stuck(now):
                each.kill()

    # An upgrade

    def begin_upgrade(self, now: float) -> None:
        """Start the one of the new version; raises OSError. No upgrade may be in progress."""
        self._servers[Role.NEXT] = ForkServerProcess(self._boot, self._command, now)
        self._transition(UpgradeEvent.BEGIN)

    def hand_over_ordered(self) -> None:
        """Note that the present supervisor was told to make way for one of the new version."""
        self._transition(UpgradeEvent.ORDER)

    def supervisor_serves(self) -> None:
        """If this is one of a new version, let the old one end: the upgrade has succeeded."""
        if self.upgrade in UNCONFIRMED:
            self._transition(UpgradeEvent.SERVE)
            self._servers.pop(Role.FORMER).close()

    def supervisor_ended(self, end: SupervisorEnd) -> UpgradeEvent | None:
        """Let the right one fork the next supervisor; return what the end was for an upgrade, None if nothing."""
        event = upgrade_event(self.upgrade, end, can_fork=self.present is not None)
        if event is not None:
            self._transition(event)
        if event is UpgradeEvent.REPLACE:
            self._move(Role.PRESENT, Role.FORMER)
            self._move(Role.NEXT, Role.PRESENT)
            if Role.FORMER not in self._servers:
                self._transition(UpgradeEvent.FORMER_ENDED)
        elif event is UpgradeEvent.FAIL:
            if self.present is not None:
                self.present.close()
            self._move(Role.FORMER, Role.PRESENT)
        return event

    def _move(self, role: Role, new: Role) -> None:
        if role in self._servers:
            self._servers[new] = self._servers.pop(role)

    def _transition(self, event: UpgradeEvent) -> None:
        self.upgrade = next_state(UPGRADE, self.upgrade, event)
