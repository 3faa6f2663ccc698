"""Files of processes that died together with a supervisor, which would have removed them."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Final

from protocol.wire import endpoints
from supervisor.runtime.supervisor import Supervisor

INTERVAL_S: Final = 10.0
MIN_AGE_S: Final = 40.0
"""If a process made an older file and still runs, it has said Hello by now."""


def remove_from_now_on(supervisor: Supervisor) -> None:
    """Remove the sockets of workers, and the request bodies of gateways, that no longer exist.

    To be called when everything that runs was taken over. The first call removes at once, because supervisors may die
    more than once in ``MIN_AGE_S``.
    """
    supervisor.loop.call_later(0.0, partial(remove, supervisor))
    supervisor.loop.every(INTERVAL_S, partial(remove, supervisor))


def remove(supervisor: Supervisor) -> None:
    """Remove them now, if they are old enough."""
    context = supervisor.process_context
    known = {supervisor.workers.socket_file(worker) for worker in supervisor.workers.names()}
    for socket in context.runtime.glob(f"{endpoints.socket_file(supervisor.workers.endpoint('')).name}*"):
        if socket not in known:
            _remove_old(socket)
    gateways = set(supervisor.peers.of("gateway"))
    for body in endpoints.spool(context.runtime).iterdir():
        if body.name.partition("-")[0] not in gateways:
            _remove_old(body)


def _remove_old(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if time.time() - path.lstat().st_mtime >= MIN_AGE_S:
            path.unlink()
