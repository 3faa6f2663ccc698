"""The fork server, as the keeper sees it: a process that has imported the supervisor's modules and forks supervisors."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Sequence

from protocol.state_table import next_state
from supervisor.keeper import channel
from supervisor.keeper.channel import ClosedError
from supervisor.keeper.error_output import print_line
from supervisor.keeper.heartbeat import STARTUP_SILENCE_S
from supervisor.keeper.process_states import FORK_SERVER, ForkServerEvent, ForkServerState

SERVE_PAUSE_S = 1.0
"""Least time between two channels to a fork server, so that a supervisor that closes each of them does not keep the keeper busy."""
_EVENTS = {channel.PREPARED: ForkServerEvent.IMPORTED, channel.CLOSED: ForkServerEvent.CHANNEL_CLOSED}
"""What its words mean."""


class ForkServerProcess:
    """One fork server. It takes the steps of the table `process_states.FORK_SERVER`."""

    def __init__(self, boot: str, command: Sequence[str], now: float) -> None:
        """Start it; raises OSError if that fails. ``boot``: the id of this run of the server."""
        self._began = now
        self._channel, theirs = channel.pair()
        self.state = ForkServerState.IMPORTING
        self._channels = 0
        """How many channels to it supervisors were given."""
        self._serve_due = 0.0
        """When a supervisor may get another one."""
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

    @property
    def is_open(self) -> bool:
        """Whether it may still say something."""
        return self._channel.is_open

    @property
    def can_fork(self) -> bool:
        """Whether it can fork supervisors."""
        return self.state in (ForkServerState.PREPARED, ForkServerState.SERVING)

    def serve(self, now: float) -> socket.socket:
        """Make it fork only for the present supervisor; return the supervisor's end of their channel."""
        ours, theirs = channel.pair()
        self._channels += 1
        self._channel.send(channel.SERVE, str(self._channels), ours.fileno())
        ours.close()
        self._serve_due = now + SERVE_PAUSE_S
        self._transition(ForkServerEvent.SERVE)
        return theirs

    def is_to_serve(self, now: float) -> bool:
        """Return whether the present supervisor needs a channel: it has none, or closed it a while ago."""
        return self.state is ForkServerState.PREPARED and now >= self._serve_due

    def start(self, end: socket.socket) -> bool:
        """Order it to fork a supervisor that gets this end of a channel; return whether the order could be given."""
        return self._channel.send(channel.START, descriptor=end.fileno())

    def read(self) -> None:
        """Read its messages."""
        try:
            while received := self._channel.receive():
                self._word_received(*received[:2])
        except ClosedError:
            self.close()

    def _word_received(self, word: str, arguments: str) -> None:
        """Take the step that a word means. One that the table does not have is ignored, as it is from a supervisor."""
        if word == channel.CLOSED and arguments != str(self._channels):
            return
        event = _EVENTS.get(word)
        if event in FORK_SERVER[self.state]:
            self._transition(event)
        elif event is not None:
            print_line(f"a fork server said '{word}' in the state '{self.state.name.lower()}': ignored")

    def is_stuck(self, now: float) -> bool:
        """Return whether it has been unable to fork for so long that another one should try."""
        return not self.can_fork and now - self._began > STARTUP_SILENCE_S

    def close(self) -> None:
        """Let it end; its supervisor lives on."""
        self._channel.close()
        self._transition(ForkServerEvent.CLOSE)

    def kill(self) -> None:
        """Kill it. It must not have been reaped yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _transition(self, event: ForkServerEvent) -> None:
        self.state = next_state(FORK_SERVER, self.state, event)
