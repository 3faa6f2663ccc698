"""Pings every peer at regular intervals, and kills the process of a peer that is silent or does not read.

Every process answers a ping, so only one that is stopped, hangs or has lost the bus is silent. This only kills the
process; everything else follows from its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from protocol.messages.peers import Ping, Pong
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.overview.running_tokens import RunningTokens
from supervisor.processes.gateway_process import ROLE as GATEWAY_MASTER

log = logs.get_logger()


class PeerMonitor:
    """Watches all registered peers."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        barrier: WorkerBarrier,
        errors: InternalErrors,
        kill_process: Callable[[str], None],
        running_tokens: RunningTokens,
    ) -> None:
        """``kill_process`` kills the process of a peer. ``running_tokens`` gets what workers say of their tokens.

        Nothing is sent before :meth:`start`.
        """
        self._running_tokens = running_tokens
        self._loop, self._bus, self._peers = loop, bus, peers
        self._barrier, self._errors, self._kill_process = barrier, errors, kill_process
        self._pings = itertools.count()

    def start(self) -> None:
        """Ping from now on."""
        self._loop.every(self._peers.ping_interval, self._ping)

    def outbox_overflowed(self, peer: str) -> None:
        """Kill a peer that leaves too many of its messages unread."""
        self._kill(peer, "it does not read")

    def pong(self, peer: str, message: Pong, _payload: bytes) -> None:
        """Count the peer's programming errors. That the peer is alive was already noted, as for every message."""
        self._errors.count += message.errors
        self._running_tokens.report(peer, message.tokens, message.running, self._loop.now())
        self._barrier.pong(peer, message.number)

    def _ping(self) -> None:
        for peer in self._peers.silent(self._loop.now()):
            self._kill(peer.id, "it does not answer")
        number = next(self._pings)
        for peer in self._peers.all():
            if peer.role != GATEWAY_MASTER:  # it is not on the bus; its heartbeats come through a pipe
                self._bus.send(peer.id, Ping(number))

    def _kill(self, peer: str, why: str) -> None:
        known = self._peers.get(peer)
        if known is not None:
            log.error("peer killed", peer=peer, role=known.role, peer_pid=known.pid, reason=why)
            self._kill_process(peer)
