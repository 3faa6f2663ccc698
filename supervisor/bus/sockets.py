"""The supervisor's sockets: the ROUTER of the control plane and the PULL of the log records.

Both are ipc sockets in the runtime directory. On a server with a cluster, both also listen on tcp, with CURVE, for processes of
other nodes.

All sends are NOBLOCK. A peer that does not read fills only its own bounded outbox. A message to a peer that has ended
is counted, and is not an error.
"""

from __future__ import annotations

import errno
import time
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
    from protocol.wire import curve

MAX_OUTBOX_MESSAGES: Final = 4096
MAX_OUTBOX_BYTES: Final = 64 * 1024 * 1024
RETRY_INTERVAL_S: Final = 0.005
_MESSAGES_PER_READ: Final = 256
_LOG_MESSAGES_PER_READ: Final = 512
_MAX_LOG_BYTES: Final = 65536
_BIND_TIMEOUT_S: Final = 2.0
_BIND_PAUSE_S: Final = 0.02

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

    def __init__(self, loop: Loop, address: BusAddress, boot: str, keys: ClusterKeys | None = None) -> None:
        """Bind both sockets in the runtime directory, which the caller has locked; raises :class:`BindError`.

        ``keys``: of a server with a cluster, which also listens on tcp.
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
            self._peer_check = None if keys is None else self._listen_on_tcp(address, keys)
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
    ) -> None:
        """Call these from now on.

        ``received(peer, message, payload)``, ``logged(record)``, ``overflow(peer)`` for a peer that does not read, and
        ``other_version(peer, version)`` for a message in another version of the protocol.
        """
        self._received, self._logged, self._overflow = received, logged, overflow
        self._other_version = other_version
        self._number = self._loop.on_socket(self._router, self._read)
        self._loop.on_socket(self._logs, self._read_logs)
        if self._peer_check is not None:
            self._loop.on_socket(self._peer_check.socket, self._peer_check.answer)

    def _listen_on_tcp(self, address: BusAddress, keys: ClusterKeys) -> curve.PeerCheck:
        """Let both sockets also listen on tcp. Of the options set until then, each listener has those that it was made with."""
        from protocol.wire import curve  # noqa: PLC0415 - only servers with a cluster need it

        check = curve.PeerCheck(self._context, keys.member)
        try:
            for bound, endpoint in zip((self._router, self._logs), address.listening_endpoints(), strict=True):
                _listen(bound, endpoint, keys)
        except OSError as problem:
            check.close()
            name = address.cluster.address if address.cluster is not None else ""
            raise BindError(problem.errno, problem.strerror, name) from problem
        return check

    def send(self, peer: str, message: Struct, payload: bytes = b"") -> None:
        """Send, or keep the message in the peer's outbox while it does not read. Never blocks, never raises."""
        frame = envelope.encode(message, payload)
        waiting = self._outboxes.get(peer)
        if waiting is None and self._try(peer, frame):
            return
        outbox = waiting or self._outboxes.setdefault(peer, _Outbox())
        if not outbox.put(frame):
            self.forget(peer)
            self._overflow(peer)
        elif not self._retrying:
            self._retrying = True
            self._loop.call_later(RETRY_INTERVAL_S, self._retry)

    def is_reading(self, peer: str) -> bool:
        """Return whether the peer has probably read everything that was sent to it."""
        return peer not in self._outboxes

    def forget(self, peer: str) -> None:
        """Drop the messages that wait for a peer that has ended."""
        self._outboxes.pop(peer, None)

    def _try(self, peer: str, frame: bytes) -> bool:
        self._loop.used(self._number)
        try:
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
            self._take(received)
            if number == _MESSAGES_PER_READ:
                return
        self._loop.drained(self._number)

    def _take(self, received: list[bytes]) -> None:
        try:
            sender, frame = received
            peer = sender.decode()
            message, payload = envelope.decode(frame)
        except envelope.OtherVersionError as problem:
            self.malformed += 1
            self._other_version(peer, problem.version)
        except ValueError:  # malformed, too few or too many frames, or a peer whose name is not text
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
        if self._peer_check is not None:
            self._loop.on_socket(self._peer_check.socket, None)
            self._peer_check.close()
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


def _listen(bound: zmq.Socket[bytes], endpoint: str, keys: ClusterKeys) -> None:
    """Let a socket also listen on tcp; raises OSError.

    The last supervisor may have ended a moment ago, so a port that is in use is tried again.
    """
    from protocol.wire import curve  # noqa: PLC0415 - only servers with a cluster need it

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
