"""The state of a supervisor that takes over from another one: until it knows what runs, it only listens.

::

    begin ──▶ each surviving process is adopted; those that had reported to an earlier supervisor are expected to do so again
      │       Hello: its snapshot is kept, and it is welcomed         other messages: kept, in their order
      ▼
    all have reported and have sent what they announced, or TIMEOUT_S has passed
      │       missing processes are killed; the snapshots are joined; gateways learn which workers live; jobs get their calls back
      ▼
    the kept messages are handled, and from now on all others at once

Only time while this process runs counts: a supervisor that was stopped, or that waits for a processor, learns nothing
about others from their silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from protocol import UNDERSTOOD
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.peers import Hello, Pong
from protocol.messages.recovery import GatewaySnapshot, JobSnapshot, WorkerSnapshot
from protocol.messages.work import Cancel, Refused, SubmitRequest
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.wire import envelope
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.peers.handshake import Handshake
from supervisor.peers.monitor import PeerMonitor
from supervisor.peers.other_versions import OtherVersions
from supervisor.processes.placement import OnEnded, Survivor
from supervisor.recovery.expected_peers import ExpectedPeers
from supervisor.recovery.kept_messages import KeptMessages
from supervisor.recovery.taken_over_gateways import TakenOverGateways
from supervisor.recovery.taken_over_jobs import TakenOverJobs, TakeOverJob
from supervisor.recovery.taken_over_workers import TakenOverWorkers
from supervisor.responses.journaled_store import JournaledStore
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.jobs import Jobs
from supervisor.runtime.messages import Messages
from supervisor.scheduler.recovery.joined_snapshots import is_consistent

if TYPE_CHECKING:  # a server on one machine has none
    from supervisor.recovery.taken_over_nodes import TakenOverNodes

TIMEOUT_S: Final = 2.0
"""A running process says Hello within milliseconds after it has noticed that its supervisor has ended."""
_TICK_S: Final = 0.02
_LONGEST_TICK_S: Final = 0.1
"""A longer time between two ticks does not count."""
_FULL: Final = Failure(Code.OVERLOADED, "too many requests came while the supervisor was replaced", retry_after=1)

log = logs.get_logger()


class Takeover:
    """The transition of a supervisor that takes over. It ends when everything is taken over."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        gateways: TakenOverGateways,
        workers: TakenOverWorkers,
        jobs: Jobs,
        job_kinds: Mapping[type, TakeOverJob],
        responses: JournaledStore,
        messages: Messages,
        decisions: Decisions,
        handshake: Handshake,
        monitor: PeerMonitor,
        other_versions: OtherVersions,
        kill: Callable[[str], None],
        nodes: TakenOverNodes | None = None,
    ) -> None:
        """Take part from now on. Nothing is adopted before :meth:`begin`.

        ``job_kinds``: see :class:`TakenOverJobs`. ``kill`` kills the process of a peer, given by its name. ``nodes``: None on
        a server on one machine.
        """
        self._loop, self._bus, self._peers = loop, bus, peers
        self._gateways, self._workers, self._all_jobs = gateways, workers, jobs
        self._jobs = TakenOverJobs(jobs, job_kinds, self._job_ended)
        self._responses, self._messages, self._decisions = responses, messages, decisions
        self._handshake, self._monitor, self._other_versions = handshake, monitor, other_versions
        self._kill, self._nodes = kill, nodes
        self._expected = ExpectedPeers()
        self._kept = KeptMessages()
        self._arrivals: dict[str, float] = {}
        """Peer → when its snapshot arrived."""
        self._agents: Mapping[str, float] = {}
        """Agent → for how many seconds it is waited for."""
        self._then: list[Callable[[], None]] = []
        self._began = self._ticked = loop.now()
        self._seconds = 0.0
        self._over = False
        messages.begin(self)

    def begin(self, adopt_gateways: Callable[[OnEnded], list[str]], survivors: Sequence[Survivor]) -> None:
        """Adopt what runs. ``adopt_gateways`` returns the names of the gateways, and reports the end of each by its name."""
        for gateway in adopt_gateways(self._gateway_ended):
            self._expected.expect(gateway)
        for survivor in survivors:
            self._adopt(survivor)
        if self._nodes is not None:
            self._agents = self._nodes.expect()
            for agent in self._agents:
                self._expected.expect(agent)
        workers, jobs = len(self._workers.names()), len(self._all_jobs.names())
        log.info("recovering", workers=workers, jobs=jobs, missing=len(self._expected.missing))
        self._loop.call_later(0.0, self._tick)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when everything is taken over."""
        self._then.append(callback)

    def _adopt(self, survivor: Survivor) -> None:
        if survivor.peer in (*self._workers.names(), *self._all_jobs.names()):
            return  # it runs elsewhere, whatever this agent says
        if survivor.role == "worker":
            if self._workers.adopt(survivor):
                self._expected.expect(survivor.peer)
        elif survivor.role == "job":
            if survivor.welcomed:
                self._jobs.adopt(survivor)
                self._expected.expect(survivor.peer)
            else:  # it has no order yet, and may be importing modules for a second
                self._jobs.end(survivor)

    def received(self, peer: str, message: Any, payload: bytes) -> None:
        """Take a message."""
        self._take(peer, message, payload)
        self._end_if_complete()

    def _take(self, peer: str, message: Any, payload: bytes) -> None:
        if isinstance(message, Hello):
            self._hello(peer, message, payload)
        elif not self._peers.message_received(peer, self._loop.now()):
            if self._nodes is None or not self._nodes.keep_later(peer, message, payload):
                log.warning("message of a peer that has not said hello", peer=peer, message=type(message).__name__)
        elif isinstance(message, Pong):
            self._monitor.pong(peer, message, payload)
        elif self._nodes is None or not self._nodes.handle(peer, message, payload):
            self._keep(peer, message, payload)

    def _keep(self, peer: str, message: Any, payload: bytes) -> None:
        if isinstance(message, SubmitRequest | Cancel):
            self._expected.submitted({RequestKey(peer, message.number, message.attempt)})
        if not self._kept.keep(peer, message, payload, self._loop.now()):
            attempt = getattr(message, "attempt", 0)
            self._bus.send(peer, Refused(getattr(message, "number", 0), attempt, _FULL))

    def _hello(self, peer: str, message: Hello, payload: bytes) -> None:
        known = message.role == "gateway" or peer in (*self._workers.names(), *self._all_jobs.names())
        if message.role == "agent" and self._nodes is not None:
            self._agent_hello(self._nodes, peer, message, payload)
            return
        if message.role.startswith("gateway"):  # or the host of some
            if not self._gateways.takes_part(peer, message, self._gateway_ended):
                return
        elif not known and not self._over and self._nodes is not None and self._nodes.keep(peer, message, payload):
            return
        if not self._handshake.accepts(peer, message, known=known):
            return
        self._forget(peer)
        if message.role == "gateway" and not message.node:
            self._expected.reported(self._gateways.joined(message, self._gateway_ended))
        self._expected.reported(peer)
        if message.role == "worker":
            self._workers.publishes_at(peer, message)
        if message.version not in UNDERSTOOD:
            self._other_versions.let_leave(peer, message)
            return
        try:
            self._take_snapshot(peer, message, payload)
        except envelope.MalformedError as problem:
            why = f"its snapshot cannot be used: {problem}"
            log.warning("peer killed", peer=peer, role=message.role, peer_pid=message.pid, reason=why)
            self._kill(peer)
            return
        self._handshake.welcome(peer, message)

    def _agent_hello(self, nodes: TakenOverNodes, agent: str, message: Hello, payload: bytes) -> None:
        for survivor in nodes.agent_hello(agent, message, payload):
            self._adopt(survivor)
        self._expected.reported(agent)
        for early in nodes.take_early():
            self._take(*early)

    def _take_snapshot(self, peer: str, message: Hello, payload: bytes) -> None:
        self._arrivals[peer] = self._loop.now()
        if message.role == "worker":
            snapshot: WorkerSnapshot = envelope.unpack_payload(payload, WorkerSnapshot)
            if not is_consistent(snapshot):
                raise envelope.MalformedError(f"it contradicts itself: {snapshot.state} without a model")
            self._workers.report(peer, snapshot)
        elif message.role == "gateway":
            self._expected.announced(
                peer, self._gateways.report(peer, envelope.unpack_payload(payload, GatewaySnapshot))
            )
        else:
            self._jobs.reported(peer, envelope.unpack_payload(payload, JobSnapshot))

    def worker_ended(self, worker: str) -> None:
        """Forget a worker that has ended meanwhile: the gateways settle its requests."""
        self._forget(worker)
        self._workers.ended(worker)
        self._expected.reported(worker)
        self._end_soon()

    def _job_ended(self, job: str) -> None:
        self._expected.reported(job)
        self._end_soon()

    def _gateway_ended(self, gateway: str) -> None:
        self._expected.reported(gateway)
        if self._peers.get(gateway) is not None:
            self._forget(gateway)
            self._gateways.ended(gateway)
        self._end_soon()

    def _forget(self, peer: str) -> None:
        self._kept.drop(peer)
        self._expected.forget_requests(peer)
        self._workers.forget(peer)
        self._gateways.forget(peer)

    def _end_soon(self) -> None:
        if not self._over:
            self._loop.call_later(0.0, self._end_if_complete)

    def _tick(self) -> None:
        if self._over:
            return
        now = self._loop.now()
        self._seconds += min(now - self._ticked, _LONGEST_TICK_S)
        self._ticked = now
        if self._seconds >= (TIMEOUT_S if self._nodes is None else self._nodes.timeout):
            self._end()
            return
        for agent, seconds in self._agents.items():
            if self._seconds >= seconds:
                self._expected.reported(agent)
        if self._expected.all_reported:
            # A gateway may get a worker's answer to a request before it could submit that again.
            self._expected.submitted(self._workers.known_attempts())
        self._end_if_complete()
        self._loop.call_later(_TICK_S, self._tick)

    def _end_if_complete(self) -> None:
        if not self._over and self._expected.complete:
            self._end()

    def _end(self) -> None:
        self._over = True
        missing = self._kill_missing()
        nodes: list[str] = []
        if self._nodes is not None:
            for early in self._nodes.take_early():  # their agents do not know them
                self._take(*early)
            nodes = self._nodes.take_over()
        world = self._workers.take_over(self._gateways.snapshots, self._arrivals)
        taken_over = self._jobs.take_over()
        workers = {*(running.worker for running in world.workers), *self._other_versions.workers}
        self._gateways.tell(sorted(workers), self._workers.endpoint, nodes)
        for worker in self._workers.reported():
            self._handshake.greet_worker(worker)
        waited = len(self._kept)
        for gateway in self._responses.owners() - self._gateways.snapshots.keys():
            self._responses.gateway_gone(gateway)
        self._messages.end_transition()
        for kept in self._kept.take(frozenset(self._gateways.snapshots), self._loop.now()):
            self._messages.handle(kept.peer, kept.message, kept.payload)
        self._decisions.start()
        log.info(
            "recovered",
            workers=len(self._workers.reported()),
            gateways=len(self._gateways.snapshots),
            attempts=sum(len(running.attempts) for running in world.workers),
            kept=waited,
            jobs=taken_over,
            killed=missing,
            milliseconds=round((self._loop.now() - self._began) * 1000),
        )
        for callback in self._then:
            callback()

    def _kill_missing(self) -> list[str]:
        missing = self._expected.missing
        for name in missing:
            self._kill(name)
        if missing:
            log.error("processes killed, they did not report to this supervisor", processes=missing)
        return missing
