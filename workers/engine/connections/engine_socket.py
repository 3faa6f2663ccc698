"""The socket of a connection to an engine: what the connection needs of it, and how one without encryption begins."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final, Protocol

CONNECTING: Final = (0, errno.EINPROGRESS)
"""Error numbers of a socket that is connected or may yet be."""


class EngineSocket(Protocol):
    """What a connection needs of its socket, encrypted or not."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def send(self, data: memoryview, /) -> int:
        """Send what the other side takes now; raises BlockingIOError if it takes nothing."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read what has come, 0 at the end; raises BlockingIOError if nothing has."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option."""

    def getpeername(self) -> Any:
        """Return the other side; raises OSError while there is no connection."""

    def close(self) -> None:
        """Close it."""


def begin_connection(family: int, address: Any) -> tuple[socket.socket, int]:
    """Return a non-blocking socket that connects, and the error number of that: one of :data:`CONNECTING`, or a failure.

    Raises OSError.
    """
    opened = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        return opened, opened.connect_ex(address)
    except OSError:
        opened.close()
        raise


def is_empty(given: EngineSocket) -> bool:
    """Return whether nothing has come on a socket, not even its end. Of an encrypted one this is not known: False."""
    if not isinstance(given, socket.socket):
        return False
    try:
        given.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
