"""Free ports below the kernel's ephemeral range, so that no connection of a test takes one in between."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, COUNT = 12_000, 20_000
_steps = itertools.count()


def free_port() -> int:
    """Return a port on which no process listens. Processes start at different places of the range."""
    while True:
        port = FIRST + (os.getpid() * 101 + next(_steps)) % COUNT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
