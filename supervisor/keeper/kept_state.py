"""What the keeper keeps for the next supervisor: descriptors, how the last one ended, orders that none has carried out."""

from __future__ import annotations

import os

from supervisor.keeper import channel
from supervisor.keeper.supervisor_process import SupervisorProcess


class KeptState:
    """Everything of a server that outlives its supervisors, except for its processes."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._descriptors: dict[str, int] = {}
        self._words: list[tuple[str, str]] = []
        self._reloads = 0
        """Orders to reload that no supervisor has carried out."""
        self.supervisors = 0
        """How many were started."""
        self.why = ""
        """Why the last one ended, until the next one was started."""

    def hold(self, name: str, descriptor: int) -> None:
        """Keep a descriptor for the next supervisor, in place of an earlier one with this name."""
        if name in self._descriptors:
            os.close(self._descriptors[name])
        self._descriptors[name] = descriptor

    def new_supervisor(self, fork_server: int, now: float) -> SupervisorProcess:
        """Return the next supervisor, which is still to be forked. ``fork_server``: its end of a channel to one."""
        held = {**self._descriptors, channel.FORK_SERVER: fork_server}
        supervisor = SupervisorProcess(now, held, self.supervisors, self.why)
        self.supervisors += 1
        self.why = ""
        return supervisor

    def send(self, supervisor: SupervisorProcess | None, word: str, arguments: str = "") -> None:
        """Send a word to the supervisor, or to the next one if there is none."""
        if supervisor is None:
            self._words.append((word, arguments))
        else:
            supervisor.send(word, arguments)

    def send_kept(self, supervisor: SupervisorProcess) -> None:
        """Send a new supervisor what the earlier ones have left to it."""
        words, self._words = self._words, []
        for word, arguments in words:
            supervisor.send(word, arguments)
        if self._reloads:
            self._reloads = 1  # one reading is enough for everything that came before it
            supervisor.send(channel.RELOAD)

    def reload_ordered(self, supervisor: SupervisorProcess | None) -> None:
        """Let the supervisor read the configuration again; keep the order until it has."""
        self._reloads += 1
        if supervisor is not None:
            supervisor.send(channel.RELOAD)

    def reloaded(self, orders: int) -> bool:
        """Note how many orders to reload were carried out; return whether none is left."""
        self._reloads = max(0, self._reloads - orders)
        return not self._reloads
