"""Free ports below the kernel's ephemeral range, so that no outgoing connection can take one before it is used."""

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
    """Return a port on which no process listens, and that was not given to another test process that is still running.

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


def free_port_pair() -> int:
    """Return a port which is free like that of :func:`free_port`, and so is the one after it."""
    while True:
        port = free_port()
        # The next one that this process looks at is usually the one after it.
        if free_port() == port + 1:
            return port


@cache
def _given_ports() -> int:
    """A file in which a process locks one byte for each port that it returns, until the process ends."""
    path = Path(tempfile.gettempdir()) / f"lemonbus-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
