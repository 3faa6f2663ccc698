"""What peers say about themselves: Hello, with a snapshot if they had a connection before, and answers to pings."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from protocol import UNDERSTOOD
from protocol.config.api_keys import keys_of_settings
from protocol.config.settings import Settings
from protocol.ids import RequestKey
from protocol.messages.peers import Hello, Peer, Pong, Shutdown, Welcome, WorkerUp
from protocol.messages.recovery import GatewaySnapshot, JobSnapshot, WorkerSnapshot
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.handlers.other_versions import OtherVersions
from supervisor.handlers.peer_ends import GatewayEnds
from supervisor.internal_errors import InternalErrors
from supervisor.limits.key_admission import KeyAdmission
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.processes.peer_registry import PeerRegistry
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs
from supervisor.runtime.loaded_code import LOADED_CODE
from supervisor.scheduler.recovery.joined_snapshots import is_consistent, join_snapshots, known_attempts
from supervisor.scheduler.scheduler import Scheduler

log = logs.get_logger()


@dataclass(frozen=True)
class PeerMessages:
    """Takes these messages. ``greet_worker`` sends a worker that has said Hello what it needs."""

    settings: Settings
    process_context: ProcessContext
    loop: Loop
    bus: SupervisorBus
    peers: PeerRegistry
    workers: WorkerProcesses
    gateway: GatewayProcess
    jobs: Jobs
    scheduler: Scheduler
    admission: KeyAdmission
    gateway_ends: GatewayEnds
    other_versions: OtherVersions
    barrier: WorkerBarrier
    errors: InternalErrors
    greet_worker: Callable[[str], None]

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {Hello: self._hello, Pong: self.pong}

    def pong(self, peer: str, message: Pong, _payload: bytes) -> None:
        """Count the peer's programming errors. That the peer is alive was already noted, as for every message."""
        self.errors.count += message.errors
        self.barrier.pong(peer, message.number)

    def welcome(self, peer: str, role: str) -> None:
        """Answer the Hello of a peer."""
        keys = keys_of_settings(self.settings) if role == "gateway" else None
        self.bus.send(peer, Welcome(self.process_context.boot, os.getpid(), LOADED_CODE, keys))

    def _hello(self, peer: str, message: Hello, payload: bytes) -> None:
        """Register a peer, and send it what it needs to begin. One that is already registered begins anew."""
        if message.boot != self.process_context.boot or not self._is_expected(peer, message.role):
            self.bus.send(peer, Shutdown(0.0, "this server did not start this process"))
            return
        if message.version not in UNDERSTOOD:
            self.other_versions.hello(peer, message)
            return
        known = self.peers.get(peer) is not None
        self.peers.add(Peer(message.role, peer, message.pid), self.loop.now())
        self.welcome(peer, message.role)
        if message.role == "worker":
            self.workers.publishes_at(peer, message.endpoint)
            self._worker_hello(peer, payload, known=known)
        elif message.role == "gateway":
            self._gateway_hello(message, payload, known=known)
        elif not payload or not envelope.unpack_payload(payload, JobSnapshot).order:
            self.jobs.send_order(peer)

    def _worker_hello(self, peer: str, payload: bytes, *, known: bool) -> None:
        if known and not self._take_up_worker(peer, envelope.unpack_payload(payload, WorkerSnapshot)):
            log.error("worker killed", worker=peer, why="messages to it were lost")
            self.workers.kill(peer)
            return
        self.scheduler.worker_reported(peer)
        self.greet_worker(peer)
        for gateway in self.peers.of("gateway"):
            self.bus.send(gateway, WorkerUp(peer, self.workers.endpoint(peer)))

    def _gateway_hello(self, message: Hello, payload: bytes, *, known: bool) -> None:
        peer = message.id
        self.gateway.joined(message, self.gateway_ends.gone)
        self.gateway.worker_up(peer)
        if known:
            self._cancel_unwanted(peer, envelope.unpack_payload(payload, GatewaySnapshot))
            self.admission.gateway_reconnected(peer)
        for worker in self.peers.of("worker"):
            self.bus.send(peer, WorkerUp(worker, self.workers.endpoint(worker)))

    def _is_expected(self, peer: str, role: str) -> bool:
        if role == "worker":
            return self.scheduler.view.worker(peer) is not None
        return role != "job" or peer in self.jobs.names()

    def _take_up_worker(self, peer: str, snapshot: WorkerSnapshot) -> bool:
        """Continue with a worker whose last connection may have lost messages; return False if that is impossible."""
        now = self.loop.now()
        world = join_snapshots({peer: snapshot}, {}, {peer: now})
        ended = known_attempts({peer: snapshot})
        return is_consistent(snapshot) and self.scheduler.worker_reconnected(world.workers[0], ended, now)

    def _cancel_unwanted(self, peer: str, snapshot: GatewaySnapshot) -> None:
        """Cancel the attempts that a gateway no longer waits for: its cancels may be lost."""
        wanted = {RequestKey(peer, request.number, request.attempt) for request in snapshot.requests}
        for key in self.scheduler.view.attempts_of_gateway(peer) - wanted:
            self.admission.cancelled(key)
            self.scheduler.request_cancelled(key, "its gateway does not wait for it any more")
