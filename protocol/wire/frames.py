"""Sends and receives whole messages through a ZeroMQ socket, without waiting.

pyzmq's own multipart calls combine their flags as Python enums for every frame, which costs more than the frames
themselves (measured: a sixth of a worker's time under load). Plain integers do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import zmq

Socket = zmq.Socket[bytes]

_NOW: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_RCVMORE: Final = int(zmq.RCVMORE)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_send: Final = zmq.backend.Socket.send
"""The C function, without the checks for draft sockets that pyzmq's ``send`` adds."""


def readable(socket: Socket) -> bool:
    """Return whether there is something to read. This also resets the socket's descriptor."""
    return bool(socket.get(_EVENTS) & _POLLIN)  # type: ignore[operator]


def send(socket: Socket, frame: bytes) -> bool:
    """Send a message of one frame; return False if the socket cannot take it now. Raises ``ZMQError`` for all other errors."""
    try:
        _send(socket, frame, _NOW)
    except zmq.Again:
        return False
    return True


def send_to(socket: Socket, peer: bytes, frame: bytes) -> bool:
    """Send a message of one frame to one peer of a ROUTER; see :func:`send`."""
    try:
        # ZeroMQ accepts a message as a whole, so only the first frame can be refused.
        _send(socket, peer, _MORE)
        _send(socket, frame, _NOW)
    except zmq.Again:
        return False
    return True


def receive_routed(socket: Socket) -> Iterator[list[bytes]]:
    """Yield every waiting message of a ROUTER: the peer, and what it sent."""
    try:
        peer = socket.recv(_NOW)
        while True:
            # The ROUTER puts the peer in front of a message, so one more frame is there, and usually only one.
            received = [peer, socket.recv(_NOW)]
            while socket.get(_RCVMORE):
                received.append(socket.recv(_NOW))
            yield received
            if not readable(socket):
                return
            peer = socket.recv(_NOW)
    except zmq.Again:
        return


def receive_each(socket: Socket) -> Iterator[bytes]:
    """Yield every waiting frame, each a message of its own; for sockets whose messages have one frame."""
    try:
        yield socket.recv(_NOW)
        # Asking first is cheaper than an exception.
        while readable(socket):
            yield socket.recv(_NOW)
    except zmq.Again:
        return
