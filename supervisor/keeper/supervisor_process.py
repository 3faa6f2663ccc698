"""The present supervisor, as the keeper sees it: its channel, what it has said, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

from supervisor.keeper import channel, process_tree
from supervisor.keeper.channel import ClosedError
from supervisor.keeper.heartbeat import Heartbeat
from supervisor.keeper.restart_policy import SupervisorEnd

_TIMEOUT_S = 5.0
"""How long a message that must not be lost may wait until it fits into the channel."""


class SupervisorProcess:
    """One supervisor, from the order to fork it to its end."""

    def __init__(self, now: float, held: Mapping[str, int], begin: str) -> None:
        """Make its channel, with the descriptors that it gets. ``begin``: the arguments of that message."""
        self._channel, self.end_of_channel = channel.pair()
        for name, descriptor in held.items():
            self._channel.send(channel.HELD, name, descriptor)
        self._channel.send(channel.BEGIN, begin)
        self.heartbeat = Heartbeat(now)
        self.first = begin.startswith("0\n")
        self.pid = 0
        """0 until it has said that it runs."""
        self.ready = False
        self.closed = False
        """Whether it has closed its channel: it has ended, or is about to."""
        self.last_words = ""
        self.killed = ""
        """Why the keeper has killed it."""
        self._status: int | None = None
        self._began = now
        self._leaving: int | None = None
        self._handed_over = False

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._channel.fileno()

    def send(self, word: str, arguments: str = "", descriptor: int = -1) -> None:
        """Send, unless it has not read for a long time: then it is about to be replaced."""
        self._channel.send(word, arguments, descriptor)

    def receive(self, now: float) -> tuple[str, str, int] | None:
        """Return the next message that is not about the supervisor itself; None if there is none."""
        try:
            while received := self._channel.receive():
                if not self._note(received[0], received[1], now):
                    return received
        except ClosedError:
            self.closed = True
        return None

    def _note(self, word: str, arguments: str, now: float) -> bool:
        """Note what it says about itself; return whether the message only does that."""
        if word == channel.STARTED and arguments.isdigit():
            self.pid, self._began = int(arguments), now
            self.heartbeat.begin()
        elif word == channel.ALIVE:
            self.heartbeat.beat()
        elif word == channel.LEAVING and arguments.isdigit():
            self._leaving = int(arguments)
        elif word == channel.HANDED_OVER:
            self._handed_over = True
        elif word == channel.LAST_WORDS:
            self.last_words = arguments
        else:
            return False
        return True

    def give(self, end_given: bool) -> None:
        """Close the end of the channel that was or could not be given to it."""
        self.end_of_channel.close()
        if not end_given:
            self.closed = True

    def reaped(self, status: int) -> None:
        """Note how it ended, and release its pid."""
        self._status = status

    def kill(self) -> None:
        """Kill it. It must not have been reaped yet."""
        if self.pid and self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended. One that never said its pid ends with its channel."""
        return self._status is not None or (self.closed and not self.pid)

    def ended(self, now: float) -> SupervisorEnd:
        """Return how it ended."""
        self._channel.close()
        return SupervisorEnd(
            self._status,
            now - self._began if self.pid else 0.0,
            leaving=self._leaving,
            handed_over=self._handed_over,
            ready=self.ready,
            first=self.first,
        )

    def describe_end(self) -> str:
        """Return how it ended, in a few words."""
        how = "it ended before it ran" if self._status is None else process_tree.describe_status(self._status)
        return ": ".join(filter(None, (how, self.last_words, self.killed)))
