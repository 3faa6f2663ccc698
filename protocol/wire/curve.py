"""CURVE on tcp sockets: key pairs, the options of a socket that listens or connects, and which peers a listener admits.

Options hold for the binds and connects that follow them, so one socket can have an ipc listener without CURVE and a tcp
listener with it: bind ipc first.

The kernel finds a peer whose machine is gone or cut off: it ends a connection whose bytes are not acknowledged for
:data:`SILENCE_MS` (``TCP_USER_TIMEOUT``), and heartbeats see to it that there are bytes. Their answers prove less, because
they wait behind whatever the peer sends: one large message on a slow link delays them for as long as it takes.
"""

from __future__ import annotations

import errno
import hmac
import random
from typing import Any, Final

import zmq

from protocol.wire.bus_address import ClusterKeys, KeyPair, MemberKeys, tcp_endpoint
from protocol.wire.frames import Socket

HEARTBEAT_INTERVAL_MS: Final = 1_000
SILENCE_MS: Final = 3_000
"""After this long without an acknowledgement from the peer's machine, a connection has ended. Also the longest time to connect."""
LONGEST_MESSAGE_MS: Final = 60_000
"""After this long without a whole message or heartbeat, a connection has ended even if something on the way acknowledges bytes."""
_DOMAIN: Final = b"lemonbus"
_ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"
_ZAP_FRAMES: Final = 7


def new_key_pair() -> KeyPair:
    """Return a new random key pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def new_cluster_keys() -> ClusterKeys:
    """Return new keys for a server."""
    return ClusterKeys(supervisor=new_key_pair(), member=new_key_pair())


def listen(bound: Socket, endpoint: str, own: KeyPair) -> None:
    """Bind a socket to a tcp endpoint that demands CURVE and a key that :class:`PeerCheck` admits; raises ``ZMQError``."""
    _tune(bound, endpoint)
    bound.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
    bound.setsockopt(zmq.CURVE_SERVER, 1)
    bound.setsockopt(zmq.CURVE_SECRETKEY, own.secret.encode())
    bound.bind(endpoint)


def listen_within(bound: Socket, host: str, ports: range, own: KeyPair) -> None:
    """Do the same at one of these ports, or at any one if there are none; raises OSError if all are in use."""
    if not ports:
        listen(bound, tcp_endpoint(host, "*"), own)
        return
    start = random.randrange(len(ports))  # noqa: S311 - others try their ports at the same moment
    for port in (*ports[start:], *ports[:start]):
        try:
            listen(bound, tcp_endpoint(host, port), own)
        except zmq.ZMQError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
        else:
            return
    raise OSError(errno.EADDRINUSE, f"each port from {ports[0]} to {ports[-1]} (worker_ports) is in use at {host}")


def use_curve(connecting: Socket, endpoint: str, server: str, keys: MemberKeys) -> None:
    """Let the next connect, to this endpoint, use a member's key. ``server``: the public key of the listener there."""
    _tune(connecting, endpoint)
    connecting.setsockopt(zmq.CURVE_SERVERKEY, server.encode())
    connecting.setsockopt(zmq.CURVE_PUBLICKEY, keys.member.public.encode())
    connecting.setsockopt(zmq.CURVE_SECRETKEY, keys.member.secret.encode())


def use_none(connecting: Socket) -> None:
    """Let the next connect be one to an ipc endpoint, as if the socket had no such options."""
    connecting.setsockopt(zmq.CURVE_SERVER, 0)
    connecting.setsockopt(zmq.HEARTBEAT_IVL, 0)


def _tune(socket: Socket, endpoint: str) -> None:
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, LONGEST_MESSAGE_MS)
    socket.setsockopt(zmq.TCP_MAXRT, SILENCE_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, SILENCE_MS)
    socket.setsockopt(zmq.HANDSHAKE_IVL, SILENCE_MS)


class PeerCheck:
    """Tells ZeroMQ which peers may connect (ZAP, RFC 27): those with the key of a member.

    The owner calls :meth:`answer` whenever :attr:`socket` has something to read. Until then, handshakes wait.
    """

    def __init__(self, context: zmq.Context[Any], keys: KeyPair) -> None:
        """Decide for all listeners of a context. It must exist before the first of them."""
        from zmq.utils import z85  # noqa: PLC0415 - only processes with a tcp listener need it

        self._allowed = z85.decode(keys.public)
        self.socket: Socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_ZAP_ENDPOINT)
        self.refused = 0
        """How many peers without that key have been refused."""

    def answer(self) -> None:
        """Answer every handshake that waits."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            number = frames[1] if len(frames) > 1 else b""
            admitted = self._admits(frames)
            self.refused += not admitted
            status = (b"200", b"OK", b"member") if admitted else (b"400", b"this key is not admitted", b"")
            self.socket.send_multipart([_ZAP_VERSION, number, *status, b""], zmq.NOBLOCK)

    def _admits(self, frames: list[bytes]) -> bool:
        if len(frames) != _ZAP_FRAMES or frames[0] != _ZAP_VERSION or frames[5] != b"CURVE":
            return False
        return hmac.compare_digest(frames[6], self._allowed)

    def close(self) -> None:
        """Admit no more peers. Until then, connections of its context's listeners do not end if nothing reads :attr:`socket`."""
        self.socket.close(0)
