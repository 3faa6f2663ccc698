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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import zmq

from protocol.wire import endpoints, frames
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
_NEVER_MS: Final = 86_400_000
"""When a DEALER to another node would connect again by itself, if it were not closed before.

With -1 (never), ZeroMQ drops what was received and not read as soon as the connection ends. On another node, that may be the
only word of a supervisor's end.
"""
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
    """Return whether the only connection of a DEALER on this node has ended, or could not be made."""
    return not int(dealer.get(zmq.EVENTS)) & int(zmq.POLLOUT)


def connect_once(dealer: S, address: BusAddress, peer: bytes, limit: int = 0) -> S:
    """Return a new DEALER, connected to the supervisor that listens now, or to none.

    When a connection on this node has ended, the socket takes no more messages: ``frames.send`` returns False. One to
    another node is then closed by its owner. ``peer``: the routing id; empty: the ROUTER chooses one. ``limit``: how many messages
    may wait in it, in each direction; 0 (no limit) for a peer that never has more of them under way than requests.
    """
    dealer.set_hwm(limit)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS if address.remote else -1)
    if peer:
        dealer.setsockopt(zmq.ROUTING_ID, peer)
    _connect(dealer, address, address.control)
    return dealer


def connect_logs(push: Socket, address: BusAddress, boot: str) -> None:
    """Connect a PUSH to the supervisor's socket for log records, and to that of each next supervisor."""
    _connect(push, address, address.logs(boot))


def _connect(socket: Socket, address: BusAddress, endpoint: str) -> None:
    if address.remote and address.cluster is not None:
        from protocol.wire import curve  # noqa: PLC0415 - only servers with a cluster need it

        curve.use_curve(socket, endpoint, address.cluster.keys.supervisor, address.cluster.keys)
    socket.connect(endpoint)


class RemoteConnection:
    """A DEALER that connects once to a supervisor on another node, and a monitor that says when it has, and when it ends."""

    def __init__(self, context: zmq.Context[Any], address: BusAddress, limit: int = 0) -> None:
        """Begin to connect; arguments as for :func:`connect_once`."""
        from protocol.wire import parts  # noqa: PLC0415 - processes of the head do not need it

        self.split = parts.split
        """Yields the frames in which to send a message."""
        self._messages = parts.SupervisorMessages()
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
        connect_once(dealer, address, b"", limit)

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

    def messages(self, received: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the messages to handle, of frames that have arrived."""
        for frame in received:
            try:
                message = self._messages.take(frame)
            except ValueError:
                message = frame
            if message is not None:
                yield message

    def close(self, linger: int = 0) -> None:
        """Close it. ``linger``: milliseconds for what was not sent."""
        self.dealer.disable_monitor()
        self.monitor.close(0)
        self.dealer.close(linger)


Watch = Callable[[Socket, Callable[[], None]], Callable[[], None]]
"""Lets the owner's loop call back when a socket has something to read; returns what ends that."""


class SupervisorDealer:
    """A peer's DEALER to one supervisor after the other, on this node or on another one. At most one exists at a time."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: BusAddress,
        peer: bytes,
        watch: Watch,
        read: Callable[[], None],
        ended: Callable[[], None],
        limit: int = 0,
    ) -> None:
        """``read`` is called while there is something to read, and may be called when there is nothing.

        ``ended`` is called once for each connection to another node that was opened and has ended, after ``read``: the last
        message of a supervisor counts. The end of a supervisor on this node is seen by its process. Other arguments as for
        :func:`connect_once`.
        """
        self._context, self._address, self._peer, self._limit = context, address, peer, limit
        self._watch, self._read, self._ended = watch, read, ended
        self.on_refused: Callable[[], None] = lambda: None
        """Called when a supervisor on another node, or what listens there, does not admit our key."""
        self.dealer: Socket | None = None
        """Exists while there is a connection to a supervisor."""
        self._connection: RemoteConnection | None = None
        """The connection to another node: it is being made, or :meth:`open` can use it, or the dealer has it."""
        self._end_noticed = False
        self._unwatch_dealer: Callable[[], None] = lambda: None
        self._unwatch_monitor: Callable[[], None] = lambda: None

    @property
    def is_remote(self) -> bool:
        """Whether the supervisor is on another node, so that only the connection to it can be watched."""
        return self._address.remote

    @property
    def file(self) -> Path:
        """The file of the supervisor's socket on this node."""
        return endpoints.socket_file(endpoints.bus(self._address.runtime))

    def find(self) -> int:
        """Return the pid of the supervisor that accepts connections now, 0 if there is none. Does not wait.

        From another node: :data:`ON_OTHER_NODE` for one that has accepted a connection, which :meth:`open` then uses. The first
        call begins to connect, so ask again soon.
        """
        if not self._address.remote:
            return find_supervisor(self._address.runtime)
        self.look()
        if self._connection is None:
            self._end_noticed = False
            self._connection = RemoteConnection(self._context, self._address, self._limit)
            self._unwatch_monitor = self._watch(self._connection.monitor, self.look)
        return ON_OTHER_NODE if self._connection.connected else 0

    def open(self) -> Socket:
        """Return a DEALER, connected to the supervisor that was found."""
        if not self._address.remote:
            self.drop()
            dealer: Socket = self._context.socket(zmq.DEALER)
            connect_once(dealer, self._address, self._peer, self._limit)
        elif self._connection is not None:
            dealer = self._connection.dealer
        else:
            raise ValueError("no supervisor was found")
        self.dealer = dealer
        self._unwatch_dealer = self._watch(dealer, self._read)
        return dealer

    def frames_of(self, message: bytes) -> Iterable[bytes]:
        """Return the frames in which to send a message: several, if it is long and goes to another node."""
        return (message,) if self._connection is None else self._connection.split(message)

    def send(self, message: bytes) -> None:
        """Send a message, if there is a connection. Only for one without a limit."""
        if self.dealer is not None:
            for frame in self.frames_of(message):
                frames.send(self.dealer, frame)

    def receive(self) -> Iterator[bytes]:
        """Return every whole message that waits. What cannot be one is left to the owner, whose decoder refuses it."""
        if self.dealer is None:
            return iter(())
        received = frames.receive_each(self.dealer)
        return received if self._connection is None else self._connection.messages(received)

    def look(self) -> None:
        """Take note of what has happened to a connection to another node."""
        connection = self._connection
        if connection is None or self._end_noticed:
            return
        connection.look()
        if not connection.ended:
            return
        self._end_noticed = True
        if connection.refused:
            self.on_refused()
        if self.dealer is None:
            self.close()
            return
        self._read()
        if self._connection is connection:
            self._ended()

    def is_broken(self) -> bool:
        """Return whether the connection has ended, or could not be made."""
        if self.dealer is None:
            return True
        return is_broken(self.dealer) if self._connection is None else self._connection.ended

    def drop(self, linger: int = 0) -> None:
        """Drop the DEALER, if there is one, with what waits in it. ``linger``: milliseconds for what was not sent."""
        if self.dealer is not None:
            self.close(linger)

    def close(self, linger: int = 0) -> None:
        """Drop the DEALER, or the connection that is being made."""
        dealer, self.dealer = self.dealer, None
        connection, self._connection = self._connection, None
        if dealer is not None:
            self._unwatch_dealer()
        if connection is not None:
            self._unwatch_monitor()
            connection.close(linger)
        elif dealer is not None:
            dealer.close(linger)
