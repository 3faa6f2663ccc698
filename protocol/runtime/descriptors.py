"""How many files and sockets a process may have open."""

from __future__ import annotations

import resource
from typing import Final

MAX_DESCRIPTORS: Final = 65_536
"""How many connections, pipes and files one of our processes may have open, if the administrator's hard limit allows it."""


def raise_limit() -> None:
    """Raise the soft limit of descriptors for this process and those that it starts.

    ZeroMQ aborts a process that has to accept a connection and has no descriptor left, and clients soon use up the
    default of 1,024. Engines get the default again (``workers/engine/process.py``).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
