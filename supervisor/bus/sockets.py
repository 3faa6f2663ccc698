"""The supervisor's sockets: the ROUTER of the control plane and the PULL of the log records.

Both are ipc sockets in the runtime directory. On a server with a cluster, there is a second ROUTER for the processes of other nodes, which
listens on tcp with CURVE, and so does the PULL.

All sends are NOBLOCK. A peer that does not read fills only its own bounded outbox. A message to a peer that has ended
is counted, and is not an error.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import zmq
from msgspec import Struct

from protocol.runtime.loop import Loop
from protocol.wire import endpoints, envelope, frames
from protocol.wire.bus_address import BusAddress, ClusterKeys

if TYPE_CHECKING:
    from supervisor.bus.remote_router import RemoteRouter

MAX_OUTBOX_MESSAGES: Final = 4096
MAX_OUTBOX_BYTES: Final = 64 * 1024 * 1024
RETRY_INTERVAL_S: Final = 0.005
_MESSAGES_PER_READ: Final = 256
_LOG_MESSAGES_PER_READ: Final = 512
_MAX_LOG_BYTES: Final = 65536

Received = Callable[[str, Any, bytes], None]


class _Outbox:
    """Messages that a peer could not take yet."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.size = 0

    def put(self, frame: bytes) -> bool:
        self.messages.append(frame)
        self.size += len(frame)
        return len(self.messages) <= MAX_OUTBOX_MESSAGES and self.size <= MAX_OUTBOX_BYTES


class SupervisorBus:
    """Sends to and receives from every peer of the server."""

    def __init__(
        self, loop: Loop, address: BusAddress, boot: str, keys: ClusterKeys | None = None, longest: float = math.inf
    ) -> None:
        """Bind the sockets in the runtime directory, which the caller has locked; raises :class:`BindError`.

        ``keys``: of a server with a cluster, which also listens on tcp. ``longest``: bytes of the longest message of a process on
        another node.
        """
        self._loop = loop
        self._context = zmq.Context(io_threads=1)
        self._router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # A peer that opens a new connection is reachable through it at once, even if the end of its old one was not
        # noticed.
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        # All peers of a supervisor that has died connect at the same moment, and each checks first whether it listens.
        self._router.setsockopt(zmq.BACKLOG, 1024)
        self._router.setsockopt(zmq.LINGER, 200)
        self._router.setsockopt(zmq.SNDHWM, 2000)
        self._router.setsockopt(zmq.RCVHWM, 0)
        self._logs: zmq.Socket[bytes] = self._context.socket(zmq.PULL)
        self._logs.setsockopt(zmq.RCVHWM, 10_000)
        self._logs.setsockopt(zmq.MAXMSGSIZE, _MAX_LOG_BYTES)
        try:
            _bind(self._router, endpoints.bus(address.runtime))
            _bind(self._logs, endpoints.logs(address.runtime, boot))
            self._remote = None if keys is None else self._listen_on_tcp(address, keys, longest)
        except BindError:
            self._context.destroy(linger=0)
            raise
        self._outboxes: dict[str, _Outbox] = {}
        self._retrying = False
        self.malformed = 0
        self.undeliverable = 0

    def listen(
        self,
        received: Received,
        logged: Callable[[bytes], None],
        overflow: Callable[[str], None],
        other_version: Callable[[str, int], None],
        alive: Callable[[str], object] = lambda _peer: None,
    ) -> None:
        """Call these from now on.

        ``received(peer, message, payload)``, ``logged(record)``, ``overflow(peer)`` for a peer that does not read,
        ``other_version(peer, version)`` for a message in another version of the protocol, and ``alive(peer)`` while a long message
        arrives.
        """
        self._received, self._logged, self._overflow = received, logged, overflow
        self._other_version, self._alive = other_version, alive
        self._number = self._loop.on_socket(self._router, self._read)
        self._loop.on_socket(self._logs, self._read_logs)
        if self._remote is not None:
            self._remote_number = self._loop.on_socket(self._remote.socket, self._read_remote)
            self._loop.on_socket(self._remote.check.socket, self._remote.check.answer)

    def _listen_on_tcp(self, address: BusAddress, keys: ClusterKeys, longest: float) -> RemoteRouter:
        from supervisor.bus.remote_router import RemoteRouter  # noqa: PLC0415 - a server on one machine has none

        try:
            return RemoteRouter(self._context, address, keys, self._logs, longest)
        except OSError as problem:
            name = address.cluster.address if address.cluster is not None else ""
            raise BindError(problem.errno, problem.strerror, name) from problem

    def send(self, peer: str, message: Struct, payload: bytes = b"") -> None:
        """Send, or keep the message in the peer's outbox while it does not read. Never blocks, never raises."""
        frame = envelope.encode(message, payload)
        if self._remote is not None and peer in self._remote:
            all(self._send(peer, part) for part in self._remote.split(frame))
        elif peer in self._outboxes or not self._try(peer, frame):
            self._send(peer, frame)

    def _send(self, peer: str, frame: bytes) -> bool:
        """Return False if the peer leaves too much unread."""
        waiting = self._outboxes.get(peer)
        if waiting is None and self._try(peer, frame):
            return True
        outbox = waiting or self._outboxes.setdefault(peer, _Outbox())
        if not outbox.put(frame):
            self._outboxes.pop(peer, None)
            self._overflow(peer)
            return False
        if not self._retrying:
            self._retrying = True
            self._loop.call_later(RETRY_INTERVAL_S, self._retry)
        return True

    def is_reading(self, peer: str) -> bool:
        """Return whether the peer has probably read everything that was sent to it."""
        return peer not in self._outboxes

    def forget(self, peer: str) -> None:
        """Drop the messages that wait for a peer that has ended. One that may live can be told so afterwards."""
        self._outboxes.pop(peer, None)
        if self._remote is not None:
            self._remote.ended(peer)

    def _try(self, peer: str, frame: bytes) -> bool:
        try:
            if self._remote is not None and peer in self._remote:
                self._loop.used(self._remote_number)
                return self._remote.send(peer, frame)
            self._loop.used(self._number)
            return frames.send_to(self._router, peer.encode(), frame)
        except zmq.ZMQError as problem:
            if problem.errno != zmq.EHOSTUNREACH:
                raise
            self.undeliverable += 1  # its end is noticed elsewhere
        return True

    def _retry(self) -> None:
        self._retrying = False
        for peer, outbox in list(self._outboxes.items()):
            while outbox.messages and self._try(peer, outbox.messages[0]):
                outbox.size -= len(outbox.messages.popleft())
            if not outbox.messages:
                del self._outboxes[peer]
        if self._outboxes:
            self._retrying = True
            self._loop.call_later(RETRY_INTERVAL_S, self._retry)

    def _read(self) -> None:
        for number, received in enumerate(frames.receive_routed(self._router), 1):
            try:
                sender, frame = received
                peer = sender.decode()
            except ValueError:  # too few or too many frames, or a peer whose name is not text
                self.malformed += 1
            else:
                self._take(peer, frame)
            if number == _MESSAGES_PER_READ:
                return
        self._loop.drained(self._number)

    def _read_remote(self) -> None:
        if self._remote is None:
            return
        for number, (peer, frame) in enumerate(self._remote.receive(), 1):
            if frame is None:
                self._alive(peer)
            elif peer:
                self._take(peer, frame)
            else:
                self.malformed += 1
            if number == _MESSAGES_PER_READ:
                return
        self._loop.drained(self._remote_number)

    def _take(self, peer: str, frame: bytes) -> None:
        try:
            message, payload = envelope.decode(frame)
        except envelope.OtherVersionError as problem:
            self.malformed += 1
            self._other_version(peer, problem.version)
        except envelope.MalformedError:
            self.malformed += 1
        else:
            self._received(peer, message, payload)

    def _read_logs(self) -> None:
        for records in islice(frames.receive_each(self._logs), _LOG_MESSAGES_PER_READ):
            for record in records.split(b"\n"):
                self._logged(record)

    def close(self) -> None:
        """For at most 200 ms, send what waits; then close."""
        self._loop.on_socket(self._router, None)
        self._loop.on_socket(self._logs, None)
        if self._remote is not None:
            self._loop.on_socket(self._remote.socket, None)
            self._loop.on_socket(self._remote.check.socket, None)
            self._remote.close()
        self._router.close()
        self._logs.close(0)
        self._context.term()


class BindError(OSError):
    """A socket of the bus cannot be made: ``filename`` is its file, or ``HOST:PORT`` of the cluster."""


def _bind(bound: zmq.Socket[bytes], endpoint: str) -> None:
    """Bind a socket; raises :class:`BindError`."""
    try:
        bound.bind(endpoint)
    except zmq.ZMQError as problem:
        raise BindError(
            problem.errno, zmq.strerror(problem.errno or 0), str(endpoints.socket_file(endpoint))
        ) from problem
