"""Which fork server forks the next supervisor: the present one, that of a new version, or the previous one again.

An upgrade starts a fork server from the code that is installed now. When it has imported everything, the supervisor
hands over to one that is forked from it. The old fork server stays until the new supervisor serves: if the new one
fails before that, the old version goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisor.keeper.fork_server import ForkServer

TRIES = 2
"""How many supervisors of a new version are started if the first ones are killed before they serve."""
PAUSE_S = 5.0
"""Least time between two starts of a fork server while a supervisor runs."""


class ForkServers:
    """At most three: the present one, the next one during an upgrade, and the old one until the upgrade has succeeded."""

    def __init__(self, boot: str, command: Sequence[str]) -> None:
        """Start none yet."""
        self._boot, self._command = boot, command
        self._due = 0.0
        self.present: ForkServer | None = None
        self.next: ForkServer | None = None
        """That of the new version, until a supervisor was forked from it."""
        self.former: ForkServer | None = None
        """That of the old version, until a supervisor of the new one serves."""
        self._tries = 0
        """How many supervisors of the new version have ended without serving."""

    def __iter__(self) -> Iterator[ForkServer]:
        """Iterate over those that run."""
        return iter([each for each in (self.present, self.next, self.former) if each is not None])

    def start_missing(self, now: float, *, urgent: bool) -> None:
        """Start the present one if it is missing; raises OSError. ``urgent``: no supervisor runs."""
        if self.present is None and (urgent or now >= self._due):
            self._due = now + PAUSE_S
            self.present = ForkServer(self._boot, self._command, now)

    def begin_upgrade(self, now: float) -> bool:
        """Start the next one, unless an upgrade is already in progress; raises OSError.

        Return whether it was started.
        """
        if self.next is not None or self.former is not None:
            return False
        self.next = ForkServer(self._boot, self._command, now)
        return True

    def reaped(self, pid: int) -> ForkServer | None:
        """Forget the one that has ended; return it, or None if the pid belongs to none."""
        ended = next((each for each in self if each.pid == pid), None)
        if ended is not None:
            ended.dismiss()
            self.present, self.next, self.former = (
                None if each is ended else each for each in (self.present, self.next, self.former)
            )
        return ended

    def replace(self) -> bool:
        """Use the next one from now on, if it is prepared; return whether it is."""
        if self.next is None or not self.next.prepared:
            return False
        self.present, self.next, self.former = self.next, None, self.present
        self._tries = 0
        return True

    def try_again(self) -> bool:
        """Return whether to try another supervisor of the new version, after one that was killed."""
        self._tries += 1
        return self.present is not None and self._tries < TRIES

    def confirm(self) -> bool:
        """Dismiss the old one: the new version serves. Return whether that ends an upgrade."""
        if self.former is None:
            return False
        self.former.dismiss()
        self.former = None
        return True

    def return_to_former(self) -> bool:
        """Use the old one again, if there is one: a supervisor of the new version did not get to serve."""
        if self.former is None:
            return False
        if self.present is not None:
            self.present.dismiss()
        self.present, self.former = self.former, None
        return True

    def kill_stuck(self, now: float) -> None:
        """Kill those that have been importing for so long that another one should try."""
        for each in self:
            if each.is_stuck(now):
                each.kill()
