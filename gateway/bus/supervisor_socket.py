"""The gateway's DEALER to one supervisor after the other, on this node or on another one, and what watches its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import zmq

from gateway.process_watch import ProcessWatch
from protocol.wire import endpoints
from protocol.wire.bus_address import BusAddress
from protocol.wire.bus_connection import RemoteSupervisor, connect_once, find_supervisor, is_broken

MAX_OUTBOX_MESSAGES: Final = 10_000
"""How many control messages wait for a supervisor that does not read.

Beyond that, only those that must arrive are sent.
"""
_LINGER_MS: Final = 200
Watch = Callable[[zmq.Socket[bytes], Callable[[], None]], Any]
"""Calls back in the hub when a socket has something to read; returns the watcher."""


class SupervisorSocket:
    """At most one DEALER exists at a time."""

    def __init__(
        self, context: zmq.Context[Any], address: BusAddress, peer: str, watch: Watch, ended: Callable[[], None]
    ) -> None:
        """``ended`` is called when the watched supervisor has ended, or a connection to another node."""
        self._context, self._address, self._peer = context, address, peer.encode()
        self._watch, self._ended = watch, ended
        self.dealer: zmq.Socket[bytes] | None = None
        """Exists while there is a connection to a supervisor."""
        self.file = endpoints.socket_file(endpoints.bus(address.runtime))
        """The file of its socket on this node."""
        self._process: ProcessWatch | None = None
        """Watches a supervisor on this node."""
        self._remote: RemoteSupervisor | None = None
        """Finds and watches one on another node."""
        if address.remote:
            self._remote = RemoteSupervisor(
                context, address, self._peer, self._watch_monitor, ended, MAX_OUTBOX_MESSAGES
            )

    def _watch_monitor(self, monitor: zmq.Socket[bytes]) -> Callable[[], None]:
        watcher = self._watch(monitor, self.look)

        def unwatch() -> None:
            watcher.stop()
            watcher.close()

        return unwatch

    def look(self) -> None:
        """Take note of what has happened to a connection to another node."""
        if self._remote is not None:
            self._remote.look()

    def find(self) -> int:
        """Return the pid of the supervisor that accepts connections now, 0 if there is none.

        From another node: -1 for one that has accepted a connection, which :meth:`open` then uses.
        """
        return self._remote.find() if self._remote is not None else find_supervisor(self._address.runtime)

    def open(self) -> zmq.Socket[bytes]:
        """Return a DEALER, connected to the supervisor that was found."""
        if self._remote is not None:
            self.dealer = self._remote.take()
        else:
            self.drop()
            dealer = self._context.socket(zmq.DEALER)
            self.dealer = connect_once(dealer, self._address, self._peer, MAX_OUTBOX_MESSAGES)
        return self.dealer

    def drop(self) -> None:
        """Drop the connection with everything that waits in it, if there is one."""
        dealer, self.dealer = self.dealer, None
        if dealer is not None:
            self._remote.drop() if self._remote is not None else dealer.close()

    def is_broken(self) -> bool:
        """Return whether the connection has ended, or could not be made."""
        return self.dealer is None or is_broken(self.dealer)

    def watch_process(self, pid: int) -> None:
        """Watch the end of the process with this pid, instead of the one watched before. On another node it cannot be watched."""
        if self._remote is not None:
            return
        if self._process is not None:
            if self._process.pid == pid and not self._process.ended:
                return
            self._process.close()
        self._process = ProcessWatch(pid, self._ended)

    def close(self) -> None:
        """Drop the connection, and watch nothing. The last message to another node gets a moment to leave."""
        if self._remote is not None:
            self._remote.drop(_LINGER_MS)
        else:
            self.drop()
        if self._process is not None:
            self._process.close()
