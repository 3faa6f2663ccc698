"""The supervisor's side of its channel to the keeper: what the keeper holds for it, heartbeats, orders and reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel, ClosedError

HEARTBEAT_INTERVAL_S: Final = 1.0
_TIMEOUT_S: Final = 5.0
"""How long a word that must not be lost may wait until the keeper has read others."""

log = logs.get_logger()


class KeeperClient:
    """One supervisor's connection to the keeper. If the keeper ends, the server ends."""

    def __init__(self, end: Channel) -> None:
        """Say that this supervisor runs, and wait for what the keeper holds; raises ``ClosedError`` if the keeper is gone."""
        self._channel = end
        end.send(channel.STARTED, str(os.getpid()), timeout=_TIMEOUT_S)
        self._held: dict[str, int] = {}
        self.predecessors = 0
        """How many supervisors this server had before this one. If any, there may be processes to adopt."""
        self.why = ""
        """Why the last one ended."""
        self._receive_held()
        self.on_end: Callable[[], None] = lambda: None
        """Called for each order to end the server: the first begins the orderly shutdown, the second ends it at once."""
        self.on_reload: Callable[[], None] = self.reloaded
        """Called when the configuration is to be read again. The callee calls :meth:`reloaded` afterwards."""
        self.on_hand_over: Callable[[], None] = lambda: None
        """Called when a successor is ready: end, and leave everything as it is."""
        self.on_upgrade_begun: Callable[[], None] = lambda: None
        self.on_upgrade_refused: Callable[[str], None] = lambda _: None
        self.on_upgrade_failed: Callable[[str], None] = lambda _: None
        self.on_exited: Callable[[int, int], None] = lambda _pid, _status: None
        """Called with the pid and the status of each process that the keeper has reaped."""
        self.on_fork_server: Callable[[int], None] = os.close
        """Called with a channel to a fork server that was started after this supervisor."""
        self.on_keeper_gone: Callable[[], None] = lambda: None
        """Called when the keeper has ended."""

    def _receive_held(self) -> None:
        while received := self._channel.receive(timeout=None):
            word, arguments, descriptor = received
            if word == channel.HELD:
                self._held[arguments] = descriptor
            elif word == channel.BEGIN:
                number, _, self.why = arguments.partition("\n")
                self.predecessors = int(number)
                return

    def take(self, name: str) -> int:
        """Return a descriptor that the keeper holds, which the caller then owns; -1 if it holds none."""
        return self._held.pop(name, -1)

    def hold(self, name: str, descriptor: int) -> None:
        """Make the keeper hold a descriptor for the next supervisor, besides this process."""
        if not self._channel.send(channel.HOLD, name, descriptor, timeout=_TIMEOUT_S):
            log.error("the keeper does not read", descriptor=name)

    def listen(self, loop: Loop) -> None:
        """From now on take the keeper's words, and tell it once a second that the loop is running."""
        self._loop = loop
        loop.on_readable(self._channel.fileno(), self._read)
        loop.every(HEARTBEAT_INTERVAL_S, self._beat)
        loop.call_later(0.0, self._beat)  # not before it runs: what must be done first may take its time

    def ready(self, status: str) -> None:
        """Say that the server answers clients. ``status`` is for the service manager."""
        self._channel.send(channel.READY, status, timeout=_TIMEOUT_S)

    def reloaded(self, orders: int = 1) -> None:
        """Say how many of the keeper's orders to reload were carried out."""
        self._channel.send(channel.RELOADED, str(orders), timeout=_TIMEOUT_S)

    def upgrade(self) -> None:
        """Ask for an upgrade."""
        self._channel.send(channel.UPGRADE, timeout=_TIMEOUT_S)

    def leaving(self, exit_code: int) -> None:
        """Say that this supervisor, and with it the server, ends in an orderly way."""
        self._channel.send(channel.LEAVING, str(exit_code), timeout=_TIMEOUT_S)

    def handed_over(self) -> None:
        """Say that this supervisor ends for its successor."""
        self._channel.send(channel.HANDED_OVER, timeout=_TIMEOUT_S)

    def last_words(self, text: str) -> None:
        """Say what ends this supervisor."""
        self._channel.send(channel.LAST_WORDS, text)

    def _beat(self) -> None:
        self._channel.send(channel.ALIVE)

    def _read(self) -> None:
        try:
            while received := self._channel.receive():
                self._handle(*received)
        except ClosedError:
            self._loop.on_readable(self._channel.fileno(), None)
            self.on_keeper_gone()

    def _handle(self, word: str, arguments: str, descriptor: int) -> None:
        if word == channel.HELD and arguments == channel.FORK_SERVER and descriptor >= 0:
            self.on_fork_server(descriptor)
        elif word == channel.EXITED:
            pid, _, status = arguments.partition(" ")
            self.on_exited(int(pid), int(status))
        elif word == channel.END:
            self.on_end()
        elif word == channel.RELOAD:
            self.on_reload()
        elif word == channel.HAND_OVER:
            self.on_hand_over()
        elif word == channel.UPGRADE_BEGUN:
            self.on_upgrade_begun()
        elif word == channel.UPGRADE_REFUSED:
            self.on_upgrade_refused(arguments)
        elif word == channel.UPGRADE_FAILED:
            self.on_upgrade_failed(arguments)
