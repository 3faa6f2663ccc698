"""A peer's connection to a supervisor: a DEALER that connects once, and never again by itself.

A DEALER that reconnected by itself would reach whichever supervisor listens then, perhaps before its owner knows that
the last one has ended. The new supervisor would have two connections of one peer, and might take the older for the
newer. So the peer itself looks for the next supervisor, and opens a new DEALER then.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final, TypeVar

import zmq

from protocol.wire import endpoints
from protocol.wire.frames import Socket

_SHORTEST_INTERVAL_S: Final = 0.01
_LONGEST_INTERVAL_S: Final = 0.1
_INTERVAL_SHARE: Final = 0.1
HELLO_INTERVAL_S: Final = 1.0
"""How often a peer that waits for a welcome checks whether its connection is broken. It then opens another one."""
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred``: process, user, group."""

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


def connect_once(dealer: S, runtime: Path, peer: bytes, limit: int = 0) -> S:
    """Return a new DEALER, connected to the supervisor that listens now, or to none.

    When that connection has ended, the socket takes no more messages: ``frames.send`` returns False. ``limit``: how
    many messages may wait in it, in each direction; 0 (no limit) for a peer that never has more of them under way than
    requests.
    """
    dealer.set_hwm(limit)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.RECONNECT_IVL, -1)
    dealer.setsockopt(zmq.ROUTING_ID, peer)
    dealer.connect(endpoints.bus(runtime))
    return dealer
