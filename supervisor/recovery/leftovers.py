"""Files of processes that died together with a supervisor, which would have removed them."""

from __future__ import annotations

from typing import Final

from protocol.wire import endpoints
from supervisor.runtime.supervisor import Supervisor

DELAY_S: Final = 60.0
"""By then every process that lives has said Hello, or was killed because it did not."""


def remove_later(supervisor: Supervisor) -> None:
    """Remove the sockets of workers, and the bodies of requests of gateways, that are not there any more."""
    supervisor.loop.call_later(DELAY_S, lambda: remove(supervisor))


def remove(supervisor: Supervisor) -> None:
    """Remove them now."""
    context = supervisor.process_context
    known = {supervisor.workers.socket_file(worker) for worker in supervisor.workers.names()}
    for socket in context.runtime.glob(f"{endpoints.socket_file(supervisor.workers.endpoint('')).name}*"):
        if socket not in known:
            socket.unlink(missing_ok=True)
    gateways = set(supervisor.peers.of("gateway"))
    for body in endpoints.spool(context.runtime).iterdir():
        if body.name.partition("-")[0] not in gateways:
            body.unlink(missing_ok=True)
