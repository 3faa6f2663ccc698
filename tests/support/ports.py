"""Free ports below the kernel's ephemeral range, so that no connection of a test takes one in between."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from functools import cache
from pathlib import Path

FIRST, COUNT = 12_000, 20_000
_steps = itertools.count()


def free_port() -> int:
    """Return a port on which no process listens, and that no other process of tests that still runs has been given.

    Processes start at different places of the range, so that they seldom meet.
    """
    while True:
        port = FIRST + (os.getpid() * 101 + next(_steps)) % COUNT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                fcntl.lockf(_given_ports(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@cache
def _given_ports() -> int:
    """A file of which a process locks the byte of each port that it gives away, until it ends."""
    path = Path(tempfile.gettempdir()) / f"lemonbus-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
