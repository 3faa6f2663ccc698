"""The fork server, as the keeper sees it: a process that has imported the supervisor's modules and forks supervisors."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Sequence

from supervisor.keeper import channel
from supervisor.keeper.channel import ClosedError
from supervisor.keeper.heartbeat import STARTUP_SILENCE_S

SERVE_PAUSE_S = 1.0
"""Least time between two channels to a fork server, so that a supervisor that closes each of them does not keep the keeper busy."""


class ForkServer:
    """One fork server."""

    def __init__(self, boot: str, command: Sequence[str], now: float) -> None:
        """Start it; raises OSError if that fails. ``boot``: the id of this run of the server."""
        self._began = now
        self._channel, theirs = channel.pair()
        self.prepared = False
        """Whether it has imported everything, and can fork."""
        self._channels = 0
        """How many channels to it supervisors were given."""
        self._serves = False
        """Whether the last of them is open."""
        self._serve_due = 0.0
        """When a supervisor may get another one."""
        self.closed = False
        """Whether it has closed its channel: it has ended, or is about to."""
        theirs.set_inheritable(True)
        environment = {
            **os.environ,
            channel.VARIABLE: str(theirs.fileno()),
            "LEMONBUS_KEEPER": str(os.getpid()),
            "LEMONBUS_BOOT": boot,
        }
        try:
            # In its own session: a terminal's Ctrl-C goes to the keeper, which forwards it once.
            self.pid = os.posix_spawn(
                command[0],
                list(command),
                environment,
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError:
            self._channel.close()
            raise
        finally:
            theirs.close()

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._channel.fileno()

    def serve(self, now: float) -> socket.socket:
        """Make it fork only for the present supervisor; return the supervisor's end of their channel."""
        ours, theirs = channel.pair()
        self._channels += 1
        self._channel.send(channel.SERVE, str(self._channels), ours.fileno())
        ours.close()
        self._serves, self._serve_due = True, now + SERVE_PAUSE_S
        return theirs

    def is_to_serve(self, now: float) -> bool:
        """Return whether the present supervisor needs a channel: it has none, or closed it a while ago."""
        return self.prepared and not self._serves and now >= self._serve_due

    def start(self, end: socket.socket) -> bool:
        """Order it to fork a supervisor that gets this end of a channel; return whether the order could be given."""
        return self._channel.send(channel.START, descriptor=end.fileno())

    def read(self) -> None:
        """Read its messages."""
        try:
            while received := self._channel.receive():
                word, arguments, _ = received
                self.prepared = self.prepared or word == channel.PREPARED
                if word == channel.CLOSED and arguments == str(self._channels):
                    self._serves = False
        except ClosedError:
            self.closed = True

    def is_stuck(self, now: float) -> bool:
        """Return whether it has been importing for so long that another one should try."""
        return not self.prepared and now - self._began > STARTUP_SILENCE_S

    def dismiss(self) -> None:
        """Let it end; its supervisor lives on."""
        self._channel.close()
        self.closed = True

    def kill(self) -> None:
        """Kill it. It must not have been reaped yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
