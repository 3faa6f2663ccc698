"""A peer's connection to a supervisor: a DEALER that connects once, and never again by itself.

A DEALER that reconnected by itself would reach whichever supervisor listens then, perhaps before its owner knows that
the last one has ended. The new supervisor would have two connections of one peer, and might take the older for the
newer. So the peer itself looks for the next supervisor, and opens a new DEALER then.

On the head, the process that listens is the supervisor, and the end of that process is the end of its connections. From
other nodes only the connection can be seen: it is made first, and then there is a supervisor until it ends.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import zmq

from protocol.wire import curve, endpoints
from protocol.wire.bus_address import BusAddress
from protocol.wire.frames import Socket

_SHORTEST_INTERVAL_S: Final = 0.01
_LONGEST_INTERVAL_S: Final = 0.1
_INTERVAL_SHARE: Final = 0.1
HELLO_INTERVAL_S: Final = 1.0
"""How often a peer that waits for a welcome checks whether its connection is broken. It then opens another one."""
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred``: process, user, group."""

ON_OTHER_NODE: Final = -1
"""In place of a supervisor's pid, for a peer on another node."""
_MONITORED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
_DISCONNECTED: Final = int(zmq.EVENT_DISCONNECTED)
_HANDSHAKE_SUCCEEDED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_EVENT: Final = struct.Struct("=H")
"""The kind of an event, with which a monitor's message begins."""
_monitors: Final = itertools.count()

S = TypeVar("S", bound=Socket)


def find_supervisor(runtime: Path) -> int:
    """Return the pid of the supervisor that accepts connections now, 0 if there is none. Does not wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        if probe.connect_ex(str(endpoints.socket_file(endpoints.bus(runtime)))):
            return 0
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


def probe_interval(waited: float) -> float:
    """Return how many seconds later to look for a supervisor again, after ``waited`` seconds without one."""
    return min(_LONGEST_INTERVAL_S, max(_SHORTEST_INTERVAL_S, _INTERVAL_SHARE * waited))


def is_broken(dealer: Socket) -> bool:
    """Return whether the only connection of a DEALER has ended, or could not be made."""
    return not int(dealer.get(zmq.EVENTS)) & int(zmq.POLLOUT)


def connect_once(dealer: S, address: BusAddress, peer: bytes, limit: int = 0) -> S:
    """Return a new DEALER, connected to the supervisor that listens now, or to none.

    When that connection has ended, the socket takes no more messages: ``frames.send`` returns False. ``limit``: how
    many messages may wait in it, in each direction; 0 (no limit) for a peer that never has more of them under way than
    requests.
    """
    dealer.set_hwm(limit)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.RECONNECT_IVL, -1)
    dealer.setsockopt(zmq.ROUTING_ID, peer)
    _connect(dealer, address, address.control)
    return dealer


def connect_logs(push: Socket, address: BusAddress, boot: str) -> None:
    """Connect a PUSH to the supervisor's socket for log records, and to that of each next supervisor."""
    _connect(push, address, address.logs(boot))


def _connect(socket: Socket, address: BusAddress, endpoint: str) -> None:
    if address.remote and address.cluster is not None:
        curve.use_curve(socket, endpoint, address.cluster.keys.supervisor, address.cluster.keys)
    socket.connect(endpoint)


class RemoteConnection:
    """A DEALER that connects once to a supervisor on another node, and a monitor that says when it has, and when it ends."""

    def __init__(self, context: zmq.Context[Any], address: BusAddress, peer: bytes, limit: int = 0) -> None:
        """Begin to connect; arguments as for :func:`connect_once`."""
        dealer: Socket = context.socket(zmq.DEALER)
        self.dealer = dealer
        self.monitor: Socket = context.socket(zmq.PAIR)
        """The owner calls :meth:`look` when it has something to read."""
        self.monitor.setsockopt(zmq.LINGER, 0)
        name = f"inproc://connection-{next(_monitors)}"
        dealer.monitor(name, _MONITORED)
        self.monitor.connect(name)
        self.connected = False
        """Whether the supervisor has accepted the connection, which may have ended since."""
        self.ended = False
        """Whether the connection has ended, or could not be made."""
        self.refused = False
        """Whether something accepted the connection and broke it off before the handshake was over: the keys do not match."""
        connect_once(dealer, address, peer, limit)

    def look(self) -> None:
        """Take note of what has happened to the connection."""
        while True:
            try:
                event = self.monitor.recv_multipart(zmq.NOBLOCK)[0]
            except zmq.Again:
                return
            kind = _EVENT.unpack_from(event)[0]
            if kind == _HANDSHAKE_SUCCEEDED:
                self.connected = True
            else:
                self.refused = self.refused or (kind == _DISCONNECTED and not self.connected)
                self.ended = True

    def close(self, linger: int = 0) -> None:
        """Close it. ``linger``: milliseconds for what was not sent."""
        self.dealer.disable_monitor()
        self.monitor.close(0)
        self.dealer.close(linger)


class RemoteSupervisor:
    """Looks for the supervisor from another node, by connecting to it. At most one connection exists at a time."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: BusAddress,
        peer: bytes,
        watch: Callable[[Socket], Callable[[], None]],
        ended: Callable[[], None],
        limit: int = 0,
    ) -> None:
        """``watch`` lets the owner's loop call :meth:`look` when a monitor has something to read, and returns what ends that.

        ``ended`` is called once for each connection that was taken and has ended. Other arguments as for :func:`connect_once`.
        """
        self._context, self._address, self._peer, self._limit = context, address, peer, limit
        self._watch, self._ended = watch, ended
        self._connection: RemoteConnection | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._taken = False

    def find(self) -> int:
        """Return :data:`ON_OTHER_NODE` if there is a connection, which :meth:`take` returns, otherwise 0; ask again soon."""
        self.look()
        connection = self._connection
        if connection is None:
            self._taken = False
            self._connection = RemoteConnection(self._context, self._address, self._peer, self._limit)
            self._unwatch = self._watch(self._connection.monitor)
        return ON_OTHER_NODE if connection is not None and connection.connected else 0

    def take(self) -> Socket:
        """Return the DEALER of the connection that was found."""
        if self._connection is None:
            raise ValueError("no supervisor was found")
        self._taken = True
        return self._connection.dealer

    def look(self) -> None:
        """Take note of what has happened to the connection."""
        if self._connection is None:
            return
        self._connection.look()
        if self._connection.ended:
            taken = self._taken
            self._taken = False
            if taken:
                self._ended()
            else:
                self.drop()

    def drop(self, linger: int = 0) -> None:
        """Close the connection, if there is one. ``linger``: milliseconds for what was not sent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._unwatch()
            connection.close(linger)
