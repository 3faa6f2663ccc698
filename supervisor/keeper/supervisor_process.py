"""The present supervisor, as the keeper sees it: its channel, what it has said, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

from protocol.state_table import next_state
from supervisor.keeper import channel, process_tree
from supervisor.keeper.channel import ClosedError
from supervisor.keeper.error_output import print_line
from supervisor.keeper.heartbeat import Heartbeat
from supervisor.keeper.process_states import SUPERVISOR, SupervisorEvent, SupervisorState
from supervisor.keeper.restart_policy import SupervisorEnd

_EVENTS = {
    channel.STARTED: SupervisorEvent.STARTED,
    channel.ALIVE: SupervisorEvent.BEAT,
    channel.READY: SupervisorEvent.READY,
    channel.LEAVING: SupervisorEvent.LEAVE,
    channel.HANDED_OVER: SupervisorEvent.HAND_OVER,
}
"""What each word about itself means."""
_WITH_NUMBER = (SupervisorEvent.STARTED, SupervisorEvent.LEAVE)


class SupervisorProcess:
    """One supervisor, from the order to fork it to its end. It takes the steps of the table `process_states.SUPERVISOR`."""

    def __init__(self, now: float, held: Mapping[str, int], predecessors: int, why: str) -> None:
        """Make its channel, with the descriptors that it gets.

        ``predecessors``: how many supervisors were started before it. ``why``: how the last one ended.
        """
        self._channel, self.end_of_channel = channel.pair()
        for name, descriptor in held.items():
            self._channel.send(channel.HELD, name, descriptor)
        self._channel.send(channel.BEGIN, f"{predecessors}\n{why}")
        self.state = SupervisorState.ORDERED
        self.heartbeat = Heartbeat(now)
        self.pid = 0
        """0 until it has said that it runs."""
        self.deadline = float("inf")
        """When to kill it, because it was told to end."""
        self.end: SupervisorEnd | None = None
        """How it ended, once it has."""
        self._first = not predecessors
        self._began = now
        self._exit_code = 0
        """What it has announced."""
        self._last_words = ""
        self._why_killed = ""

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._channel.fileno()

    @property
    def is_open(self) -> bool:
        """Whether it may still say something."""
        return self._channel.is_open

    def send(self, word: str, arguments: str = "", descriptor: int = -1) -> None:
        """Send, unless it has not read for a long time: then it is about to be replaced."""
        self._channel.send(word, arguments, descriptor)

    def receive(self, now: float) -> tuple[str, str, int] | None:
        """Return the next message that is not only about the supervisor itself; None if there is none."""
        try:
            while received := self._channel.receive():
                if not self._note(received[0], received[1], now):
                    return received
        except ClosedError:
            self._channel.close()
            if not self.pid and self.end is None:
                self._ended(None, now)  # nothing else reports the end of a process that never ran
        return None

    def _note(self, word: str, arguments: str, now: float) -> bool:
        """Note what it says about itself; return whether the message only does that.

        A word that the table does not have in its state is printed and ignored: it may be of another release, and an
        error would keep the keeper from everything else that it has to do.
        """
        if word == channel.LAST_WORDS:
            self._last_words = arguments
            return True
        event = _EVENTS.get(word)
        if event is None or (event in _WITH_NUMBER and not arguments.isdecimal()):
            return False
        if event not in SUPERVISOR[self.state]:
            print_line(f"the supervisor said '{word}' in the state '{self.state.name.lower()}': ignored")
            return True
        self._transition(event)
        if event is SupervisorEvent.LEAVE:
            self._exit_code = int(arguments)
        elif event is SupervisorEvent.BEAT:
            self.heartbeat.beat()
        elif event is SupervisorEvent.STARTED:
            self._started(int(arguments), now)
        return event is not SupervisorEvent.READY

    def _started(self, pid: int, now: float) -> None:
        self.pid, self._began = pid, now
        self.heartbeat.beat()
        if self.state is SupervisorState.KILLED:
            self._kill()

    def give(self, *, end_given: bool, now: float) -> None:
        """Close the end of the channel that was or could not be given to it."""
        self.end_of_channel.close()
        if not end_given:
            self._ended(None, now)

    def reaped(self, status: int, now: float) -> None:
        """Note its end. Everything that it has said must have been read."""
        self._ended(status, now)

    def kill(self, why: str) -> bool:
        """Kill it, once. Return whether it did not run yet, so that its fork server is to be killed for it."""
        if self.state in (SupervisorState.KILLED, SupervisorState.ENDED):
            return False
        self._why_killed = self._why_killed or why
        self._transition(SupervisorEvent.KILL)
        self._kill()
        return not self.pid

    def _kill(self) -> None:
        """Kill the process, if it runs. It has not been reaped yet."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _ended(self, status: int | None, now: float) -> None:
        lived = now - self._began if self.pid else 0.0
        self.end = SupervisorEnd(self.state, status, lived, exit_code=self._exit_code, first=self._first)
        self._transition(SupervisorEvent.END)
        self._channel.close()

    def _transition(self, event: SupervisorEvent) -> None:
        self.state = next_state(SUPERVISOR, self.state, event)

    def describe_end(self) -> str:
        """Return how it ended, in a few words."""
        status = self.end.status if self.end is not None else None
        how = "it ended before it ran" if status is None else process_tree.describe_status(status)
        return ": ".join(filter(None, (how, self._last_words, self._why_killed)))
