"""What peers say about themselves: Hello, with a snapshot if they had a connection before, and answers to pings."""

from __future__ import annotations

from protocol import UNDERSTOOD
from protocol.ids import RequestKey
from protocol.messages.peers import Hello, Pong, Shutdown, WorkerUp
from protocol.messages.recovery import GatewaySnapshot, JobSnapshot, WorkerSnapshot
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.wire import envelope
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.limits.key_admission import KeyAdmission
from supervisor.peers.handshake import Agents, Handshake, OtherGateways
from supervisor.peers.monitor import PeerMonitor
from supervisor.peers.other_versions import OtherVersions
from supervisor.peers.peer_exit import GatewayEnds
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs
from supervisor.scheduler.recovery.joined_snapshots import is_consistent, join_snapshots, known_attempts
from supervisor.scheduler.scheduler import Scheduler
from supervisor.usage.accounting import Accounting

log = logs.get_logger()


class PeerMessages:
    """Takes these messages."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        workers: WorkerProcesses,
        gateway: GatewayProcess,
        jobs: Jobs,
        scheduler: Scheduler,
        admission: KeyAdmission,
        accounting: Accounting,
        gateway_ends: GatewayEnds,
        other_versions: OtherVersions,
        handshake: Handshake,
        monitor: PeerMonitor,
        agents: Agents | None = None,
        other_gateways: OtherGateways | None = None,
    ) -> None:
        self._loop, self._bus, self._peers, self._workers = loop, bus, peers, workers
        self._gateway, self._jobs, self._scheduler = gateway, jobs, scheduler
        self._admission, self._accounting = admission, accounting
        self._gateway_ends, self._other_versions = gateway_ends, other_versions
        self._handshake, self._monitor, self._agents = handshake, monitor, agents
        self._other_gateways = other_gateways

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {Hello: self._hello, Pong: self._monitor.pong}

    def _hello(self, peer: str, message: Hello, payload: bytes) -> None:
        """Register a peer, and send it what it needs to begin. One that is already registered begins anew."""
        # A gateway, or the host of some.
        if message.node and message.role.startswith("gateway") and not self._takes_part(peer, message):
            return
        if not self._handshake.accepts(peer, message, known=self._is_expected(peer, message)):
            return
        if message.role == "agent":
            if self._agents is not None:
                self._agents.hello(peer, message, payload)
            return
        if message.version not in UNDERSTOOD:
            self._other_versions.hello(peer, message)
            return
        known = self._peers.get(peer) is not None
        self._handshake.welcome(peer, message)
        if message.role == "worker":
            self._workers.publishes_at(peer, message)
            self._worker_hello(peer, payload, known=known)
        elif message.role == "gateway":
            self._gateway_hello(message, payload, known=known)
        elif self._scheduler.view.closing:  # it was starting when all others were told
            self._bus.send(peer, Shutdown(0.0, "draining"))
        elif not payload or not envelope.unpack_payload(payload, JobSnapshot).order:
            self._jobs.send_order(peer)

    def _takes_part(self, peer: str, hello: Hello) -> bool:
        """Take a gateway of another node, or the host of some; return whether it is a gateway that takes part."""
        others = self._other_gateways
        return others is not None and others.hello(peer, hello, self._gateway_ends.gone)

    def _worker_hello(self, peer: str, payload: bytes, *, known: bool) -> None:
        if known and not self._take_up_worker(peer, envelope.unpack_payload(payload, WorkerSnapshot)):
            log.error("worker killed", worker=peer, reason="messages to it were lost")
            self._workers.kill(peer)
            return
        self._scheduler.worker_reported(peer)
        self._handshake.greet_worker(peer)
        for gateway in self._peers.of("gateway"):
            self._send_worker_up(gateway, peer)

    def _gateway_hello(self, message: Hello, payload: bytes, *, known: bool) -> None:
        peer = message.id
        if not message.node:
            self._gateway.joined(message, self._gateway_ends.gone)
            self._gateway.worker_up(peer)
        if known:
            self._cancel_unwanted(peer, envelope.unpack_payload(payload, GatewaySnapshot))
            self._admission.gateway_reconnected(peer)
        for worker in self._peers.of("worker"):
            self._send_worker_up(peer, worker)

    def _send_worker_up(self, gateway: str, worker: str) -> None:
        endpoint = self._workers.endpoint(worker, self._peers.node_of(gateway))
        self._bus.send(gateway, WorkerUp(worker, endpoint, self._peers.node_of(worker)))

    def _is_expected(self, peer: str, hello: Hello) -> bool:
        match hello.role:
            case "worker":
                known = self._scheduler.view.worker(peer)
                return known is not None and known.node == (hello.node or HEAD)
            case "agent":
                return self._agents is not None
            case "job":
                return peer in self._jobs.names()
            case "gateway":
                return True
            case _:
                return False

    def _take_up_worker(self, peer: str, snapshot: WorkerSnapshot) -> bool:
        """Continue with a worker whose last connection may have lost messages; return False if that is impossible."""
        now = self._loop.now()
        world = join_snapshots({peer: snapshot}, {}, {peer: now})
        ended = known_attempts({peer: snapshot})
        for end in snapshot.ended:
            self._accounting.attempt_ended(peer, end)
        return is_consistent(snapshot) and self._scheduler.worker_reconnected(world.workers[0], ended, now)

    def _cancel_unwanted(self, peer: str, snapshot: GatewaySnapshot) -> None:
        """Cancel the attempts that a gateway no longer waits for: its cancels may be lost."""
        wanted = {RequestKey(peer, request.number, request.attempt) for request in snapshot.requests}
        for key in self._scheduler.view.attempts_of_gateway(peer) - wanted:
            self._admission.cancelled(key)
            self._scheduler.request_cancelled(key, "its gateway does not wait for it any more")
