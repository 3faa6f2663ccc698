"""The supervisor's ROUTER for processes of other nodes: tcp with CURVE. On a server without a cluster this is not imported.

Invariants:

* ZeroMQ chooses the routing ids, so no connection takes the place of another one. A peer is reached through the connection on
  which it has said Hello last, and only the peer itself can say Hello under its id.
* Nothing is taken from a connection before a Hello that is not refused.
* No frame is longer than a part (``protocol/wire/parts.py``), before the handshake as after it, and no message longer than
  what the owner allows.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from typing import Any, Final

import zmq
from msgspec import Struct

from protocol.failures import printable
from protocol.messages.peers import Hello, Shutdown
from protocol.runtime import logs
from protocol.wire import curve, envelope, frames, parts
from protocol.wire.bus_address import BusAddress, ClusterKeys
from supervisor.bus.hello_check import Refusal, RefusalCounts, refusal

MAX_MESSAGES: Final = 2000
"""How many frames of one peer, or for one peer, wait in the socket."""
MAX_UNKNOWN: Final = 1024
"""How many connections are remembered that have not said Hello."""
MAX_ENDED: Final = 4096
"""How many connections are remembered whose peers have ended, for the server."""
_HELLO: Final = b"LB0 Hello\n"
_BIND_TIMEOUT_S: Final = 2.0
_BIND_PAUSE_S: Final = 0.02

log = logs.get_logger()


class _Connection(Struct):
    """One connection, by its routing id."""

    message: parts.PartialMessage
    peer: str = ""
    """Empty before its Hello."""


class RemoteRouter:
    """Passes on messages of peers that have said Hello."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: BusAddress,
        keys: ClusterKeys,
        logs_socket: frames.Socket,
        longest: float,
    ) -> None:
        """Listen at the address of the cluster, and let the socket for log records listen as well; raises OSError.

        ``longest``: bytes of the longest message that is not a single part.
        """
        self._longest, self._keys = longest, keys
        self.refused = RefusalCounts()
        self._connections: dict[bytes, _Connection] = {}
        self._unknown: dict[bytes, None] = {}
        """Those without a peer, the latest last."""
        self._routes: dict[str, bytes] = {}
        self._ended: dict[str, None] = {}
        """Peers that have ended; the latest is the last one."""
        self.check = curve.PeerCheck(context, keys.member)
        self.socket: frames.Socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.BACKLOG, 1024)
        self.socket.setsockopt(zmq.LINGER, 200)
        self.socket.setsockopt(zmq.SNDHWM, MAX_MESSAGES)
        self.socket.setsockopt(zmq.RCVHWM, MAX_MESSAGES)
        self.socket.setsockopt(zmq.MAXMSGSIZE, parts.MAX_FRAME_BYTES)
        try:
            for bound, endpoint in zip((self.socket, logs_socket), address.listening_endpoints(), strict=True):
                _listen(bound, endpoint, keys)
        except OSError:
            self.close()
            raise

    def __contains__(self, peer: str) -> bool:
        """Return whether a peer has said Hello here."""
        return peer in self._routes

    @staticmethod
    def split(frame: bytes) -> Iterator[bytes]:
        """Yield the frames in which a message is sent."""
        return parts.split(frame)

    def send(self, peer: str, frame: bytes) -> bool:
        """Send a frame to a peer; return False if it cannot be taken now. Raises ``ZMQError`` if its connection has ended."""
        return frames.send_to(self.socket, self._routes[peer], frame)

    def receive(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield what waits: the peer, empty if it may not say anything, and its message, None for a part of one.

        What cannot be used is given as an empty message, so that it is counted.
        """
        for received in frames.receive_routed(self.socket):
            route = received[0]
            connection = self._connections.get(route) or self._connected(route)
            try:
                _, frame = received
                message = connection.message.take(frame)
            except ValueError:  # several frames, or wrong parts
                yield connection.peer, b""
                continue
            if message is not None and message.startswith(_HELLO):
                self._hello(route, connection, message)
            yield connection.peer, message

    def _connected(self, route: bytes) -> _Connection:
        if len(self._unknown) >= MAX_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest], self._connections[oldest]
        self._unknown[route] = None
        connection = self._connections[route] = _Connection(parts.PartialMessage(self._longest))
        return connection

    def _hello(self, route: bytes, connection: _Connection, frame: bytes) -> None:
        """Assign the connection to the peer that a Hello names, or to none if the Hello is refused."""
        try:
            hello, _ = envelope.decode(frame)
        except envelope.MalformedError:
            return
        refused = refusal(hello, self._keys)
        if connection.peer not in ("", hello.id):
            refused = Refusal("twice", f"this connection belongs to {connection.peer}")
        if refused is not None:
            self._refuse(route, hello, refused)
            self._drop(connection.peer)
            connection.peer = ""
        elif not connection.peer:
            self._drop(hello.id)
            self._unknown.pop(route, None)
            self._ended.pop(hello.id, None)
            connection.peer = hello.id
            self._connections[route] = connection
            self._routes[hello.id] = route

    def _refuse(self, route: bytes, hello: Hello, refused: Refusal) -> None:
        if number := self.refused.count(refused.kind):
            shown = {"role": printable(hello.role), "node": printable(hello.node)}
            log.warning("peer refused", **shown, reason=refused.why, times=number)
        try:
            frames.send_to(self.socket, route, envelope.encode(Shutdown(0.0, refused.why)))
        except zmq.ZMQError as problem:
            if problem.errno != zmq.EHOSTUNREACH:
                raise

    def ended(self, peer: str) -> None:
        """Keep the connection of a peer that has ended only for a last word, until others have ended."""
        if peer in self._routes:
            self._ended.pop(peer, None)
            self._ended[peer] = None
            if len(self._ended) > MAX_ENDED:
                self._drop(next(iter(self._ended)))

    def _drop(self, peer: str) -> None:
        self._ended.pop(peer, None)
        route = self._routes.pop(peer, None)
        if route is not None:
            self._connections.pop(route, None)

    def close(self) -> None:
        """Send for at most 200 ms what waits; then close."""
        self.check.close()
        self.socket.close()


def _listen(bound: frames.Socket, endpoint: str, keys: ClusterKeys) -> None:
    """Let a socket also listen on tcp; raises OSError.

    The last supervisor may have ended a moment ago, so a port that is in use is tried again.
    """
    end = time.monotonic() + _BIND_TIMEOUT_S
    while True:
        try:
            curve.listen(bound, endpoint, keys.supervisor)
        except zmq.ZMQError as problem:
            if problem.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise OSError(problem.errno, zmq.strerror(problem.errno or 0)) from problem
            time.sleep(_BIND_PAUSE_S)
        else:
            return
