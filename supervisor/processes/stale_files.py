"""Files that ended processes left in the runtime directory: sockets of workers, and spooled request bodies of gateways.

Those of a process whose end is noticed are removed at once; this also finds those of processes that died together with
a supervisor, or before they had said Hello.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints

INTERVAL_S: Final = 10.0
MIN_AGE_S: Final = 40.0
"""If a process made an older file and still runs, it has said Hello by now."""


def remove_from_now_on(loop: Loop, context: ProcessContext, gateways: Callable[[], Collection[str]]) -> None:
    """Remove them now and at regular intervals. To be called when everything that runs was taken over.

    Supervisors may die more than once in :data:`MIN_AGE_S`, so the first look is at once. ``gateways`` returns those
    that have said Hello.
    """

    def look() -> None:
        remove(context, gateways())

    loop.call_later(0.0, look)
    loop.every(INTERVAL_S, look)


def remove(context: ProcessContext, gateways: Collection[str]) -> None:
    """Remove those that are old enough."""
    for file in context.runtime.iterdir():
        if file.is_socket() and _is_old(file) and not _is_bound(file):
            file.unlink(missing_ok=True)
    for body in endpoints.spool(context.runtime).iterdir():
        if body.name.partition("-")[0] not in gateways and _is_old(body):
            body.unlink(missing_ok=True)


def remove_bodies(context: ProcessContext, gateway: str) -> None:
    """Remove the request bodies of a gateway that has ended."""
    for body in endpoints.spool(context.runtime).glob(f"{gateway}-*"):
        body.unlink(missing_ok=True)


def read_body(context: ProcessContext, name: str) -> bytes:
    """Return a request's body that a gateway has put into a file; raises OSError."""
    return (endpoints.spool(context.runtime) / Path(name).name).read_bytes()


def _is_old(file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - file.lstat().st_mtime >= MIN_AGE_S
    return False


def _is_bound(file: Path) -> bool:
    """Return whether a process has the socket open. Does not wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(str(file)) != errno.ECONNREFUSED
