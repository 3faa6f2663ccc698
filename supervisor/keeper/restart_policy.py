"""Decides what follows the end of a supervisor: another one, now or later, or the end of the server. Pure."""

from __future__ import annotations

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


class SupervisorEnd:
    """How a supervisor ended."""

    def __init__(
        self,
        status: int | None,
        lived: float,
        *,
        leaving: int | None = None,
        handed_over: bool = False,
        ready: bool = False,
        first: bool = False,
    ) -> None:
        """Note how it ended.

        ``status``: as in ``subprocess``, None if unknown. ``lived``: seconds. ``leaving``: the exit code that it
        announced. ``ready``: it had served. ``first``: it was the first of this server.
        """
        self.status, self.lived, self.leaving = status, lived, leaving
        self.handed_over, self.ready, self.first = handed_over, ready, first

    def ends_server(self, *, closing: bool) -> bool:
        """Return whether this was the orderly end of the server. ``closing``: the server was told to end."""
        return self.leaving is not None and (self.ready or self.first or closing)


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

    def after(self, end: SupervisorEnd, *, orders_to_end: int = 0) -> Restart | Exit:
        """Return what to do now.

        ``orders_to_end``: how often the server was told to end; the second time means at once.
        """
        if end.leaving is not None and end.ends_server(closing=orders_to_end > 0):
            return Exit(end.leaving)
        if orders_to_end:
            # Its successor ends the server in an orderly way: streams still have the grace period.
            self._deaths_in_shutdown += 1
            if orders_to_end > 1 or self._deaths_in_shutdown > MAX_DEATHS_IN_SHUTDOWN:
                return Exit(EXIT_FAILED)
            return Restart(0.0)
        if end.handed_over:
            return Restart(0.0)
        if end.first and not end.ready and end.status is not None and end.status > 0:
            return Exit(end.status)  # it has said why, and there is nothing to protect yet
        if end.lived >= EARLY_S:
            self._early = 0
            return Restart(0.0)
        self._early += 1
        if self._early >= MAX_EARLY_DEATHS:
            return Exit(EXIT_FAILED, gave_up=True)
        return Restart(min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._early - 2)) if self._early > 1 else 0.0)
