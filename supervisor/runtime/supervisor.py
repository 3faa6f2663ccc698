"""The house: owns the bus, the processes and the scheduler, and carries between them. It decides nothing.

A message, a death or a timer comes in; the scheduler says what follows; the house does it.  What a message
means is in :mod:`supervisor.handlers.peers`, :mod:`supervisor.handlers.requests`, :mod:`supervisor.handlers.downloads` and
:mod:`supervisor.handlers.admin`, one function each.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from protocol import ids
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.admin import CallResult, StatsReport
from protocol.messages.leases import LeaseEnded, LeaseUsed
from protocol.messages.peers import Hello, Ping, Pong, WorkerGone
from protocol.messages.work import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptsEnded,
    Cancel,
    Granted,
    GrantedAttempt,
    Refused,
    SubmitRequest,
)
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope
from protocol.wire.endpoints import events, runs, socket_file
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.bus import SupervisorBus
from supervisor.runtime.download_registry import DownloadRegistry
from supervisor.runtime.gateway_process import ROLE as GATEWAY_MASTER
from supervisor.runtime.gateway_process import GatewayProcess
from supervisor.runtime.internal_errors import InternalErrors
from supervisor.runtime.logbook import LogBook
from supervisor.runtime.peers import PeerRegistry
from supervisor.runtime.processes import ChildProcess, ChildProcesses
from supervisor.runtime.state_writer import StateWriter
from supervisor.scheduler.backoff import BackoffPolicy
from supervisor.scheduler.effects import (
    AnswerCall,
    Effect,
    FetchModel,
    ForgetModel,
    KillAfter,
    KillWorker,
    LogDecision,
    NotifyGrant,
    SendMessage,
    SpawnWorker,
)
from supervisor.scheduler.scheduler import Scheduler
from supervisor.scheduler.state import SchedulerLimits
from supervisor.scheduler.worker_lifecycle import WorkerState

RECONCILE_INTERVAL_S: Final = 0.25
PING_INTERVAL_S: Final = 1.0
GRANT_NOTICE_DELAY_S: Final = 0.01

_SETTLED_MESSAGES: Final = frozenset(
    {SubmitRequest, Cancel, AttemptEnded, AttemptsEnded, LeaseEnded, LeaseUsed, Pong, AttemptAbandoned}
)
"""Messages that move nothing on a settled board beyond what they say."""

log = logs.get_logger()
Handler = Callable[["Supervisor", str, Any, bytes], None]
"""What a message means: the house, the peer that sent it, the message, its payload."""


class Supervisor:
    """Everything the supervisor holds."""

    def __init__(self, settings: Settings, process_context: ProcessContext, loop: Loop, listen_fd: int) -> None:
        """Take the runtime directory's lock and the listener as given; start nothing yet."""
        self.settings = settings
        self.process_context = process_context
        self.loop = loop
        self.listen_fd = listen_fd
        self.errors = InternalErrors()
        self.started_at = loop.now()
        self.state_writer = StateWriter(loop)
        self.models = ModelRegistry(settings, self.state_writer.finish)
        self.logbook = LogBook(process_context.boot, settings.log_retained)
        self.peers = PeerRegistry(settings.peer_silence)
        self.downloads = DownloadRegistry()
        self.processes = ChildProcesses(loop, process_context)
        self.bus = SupervisorBus(loop, process_context.runtime, process_context.boot)
        policy = BackoffPolicy(
            settings.backoff_first, settings.backoff_most, settings.breaker_deaths, settings.breaker_window
        )
        limits = SchedulerLimits(
            settings.max_loaded_models,
            settings.queue_requests,
            settings.queue_bytes,
            settings.grace,
            policy,
            verbose=settings.log_level in ("debug", "trace"),
        )
        self.scheduler = Scheduler(limits, lambda: ids.peer_id("worker"))
        self.worker_processes: dict[str, ChildProcess] = {}
        self.gateway = GatewayProcess(loop, self.processes, self.peers, listen_fd)
        self.gateway.closing = lambda: self.scheduler.closing
        self.gateway.on_ended = self._gateway_ended
        self.running_names: dict[str, str] = {}
        """What clients call a model that runs → its name: not looked up on the disk again."""
        self.job_processes: dict[str, ChildProcess] = {}
        self.job_orders: dict[str, msgspec.Struct] = {}
        """What job processes that are being started are to do, by job."""
        self.stats = StatsReport()
        self.stats_by_model: dict[str, StatsReport] = {}
        self.on_worker_hello: list[Callable[[str], None]] = []
        """Called with the name of each worker that has said Hello."""
        self.on_process_ended: Callable[[], None] = lambda: None
        """Called when a process has ended: the house may be empty now."""
        self.fetch: Callable[[str], None] = lambda _model: None
        self._grants: dict[str, list[GrantedAttempt]] = {}
        """What gateways are still to be told, by gateway."""
        self._handlers: dict[type, Handler] = {}
        self._pings = itertools.count()
        self._own_calls = itertools.count(1)
        self._results: dict[int, Callable[[object], None]] = {}

    # ---- life ------------------------------------------------------------------------------------------------

    def open(self, handlers: Mapping[type, Handler]) -> None:
        """Take part in the bus, and start the gateway and the first spare worker."""
        self._handlers.update(handlers)
        self.bus.listen(self._received, self._logged, self._overflow, self._other_version)
        logs.set_sink(self._logged)
        self.loop.every(RECONCILE_INTERVAL_S, self.reconcile)
        self.loop.every(PING_INTERVAL_S, self._ping)
        self.loop.after_each_iteration(self._spread_logs)
        self.gateway.start()
        self.reconcile()

    def reconcile(self) -> None:
        """Let the scheduler do what the present state allows, and carry out its effects."""
        while self.models.problems:
            log.warning("model files", problem=self.models.problems.pop(0))
        self._reconcile(self.scheduler.reconcile)

    def _reconcile(self, decide: Callable[[float], None]) -> None:
        """Let the scheduler decide; what it decided before it raised is carried out too, or peers would wait for it."""
        try:
            decide(self.loop.now())
        except Exception as problem:  # noqa: BLE001 - logged and counted; the next event tries again
            self.scheduler.settled = False
            self.errors.failure_of(problem, where="scheduler")
        self.perform(self.scheduler.effects())

    def _gateway_ended(self) -> None:
        self.on_process_ended()

    def _ping(self) -> None:
        for peer in self.peers.silent(self.loop.now()):
            self.kill_peer(peer.id, "it does not answer")
        number = next(self._pings)
        for peer in self.peers.all():
            if peer.role != GATEWAY_MASTER:  # it is not on the bus; its heartbeats come through a pipe
                self.bus.send(peer.id, Ping(number))

    def _overflow(self, peer: str) -> None:
        self.kill_peer(peer, "it does not read")

    def kill_peer(self, peer: str, why: str) -> None:
        """End a peer's process; everything else follows from its death."""
        known = self.peers.get(peer)
        if known is not None:
            log.error("peer killed", peer=peer, role=known.role, peer_pid=known.pid, why=why)
            with contextlib.suppress(ProcessLookupError):
                os.kill(known.pid, signal.SIGKILL)

    # ---- logs ------------------------------------------------------------------------------------------------

    def _logged(self, record: bytes) -> None:
        self.logbook.append(record)

    def _spread_logs(self) -> None:
        for peer, batch in self.logbook.batches(self.bus.takes):
            self.bus.send(peer, batch)

    # ---- messages --------------------------------------------------------------------------------------------

    def _received(self, peer: str, message: Any, payload: bytes) -> None:
        known = self.peers.message_received(peer, self.loop.now())
        handler = self._handlers.get(type(message))
        if handler is None or not (known or isinstance(message, Hello)):
            log.warning("unexpected message", peer=peer, message=type(message).__name__)
            return
        try:
            handler(self, peer, message, payload)
        except Exception as problem:  # noqa: BLE001 - the message has failed, not the supervisor
            self._handler_failed(peer, message, problem)
        if type(message) in _SETTLED_MESSAGES:
            self._reconcile(self.scheduler.reconcile_unless_settled)
        else:
            self.reconcile()

    def _handler_failed(self, peer: str, message: Any, problem: Exception) -> None:
        """Answer a gateway's message whose handler raised, and undo what a failed request has left in the scheduler."""
        context = {"message": type(message).__name__, "peer": peer}
        label = getattr(message, "label", "")
        failure = self.errors.failure_of(problem, **context, **({"request_id": label} if label else {}))
        known = self.peers.get(peer)
        if known is None or known.role != "gateway":
            return
        attempt = 0
        if isinstance(message, SubmitRequest):
            attempt = message.attempt
            try:
                self.scheduler.request_cancelled(RequestKey(peer, message.number, attempt), Code.INTERNAL)
            except Exception as other:  # noqa: BLE001 - counted; the client is answered all the same
                self.errors.failure_of(other, **context)
        self.bus.send(peer, Refused(getattr(message, "number", 0), attempt, failure))

    def _other_version(self, peer: str, version: int) -> None:
        """A process of another version of lemonbus was started by this server: the installed one has changed."""
        self.scheduler.version_mismatch(peer, version, self.loop.now())
        job = self.job_processes.get(peer)
        if job is not None:
            self.processes.kill(job)
        self.reconcile()

    def answer(self, peer: str, number: int, report: object) -> None:
        """Answer a call."""
        self.bus.send(peer, CallResult(number), envelope.pack_payload(report))

    def answer_when_written(self, peer: str, number: int, report: object) -> None:
        """Answer a call that changed a state file as soon as the change is on the disk; refuse it if that failed."""

        def written(problem: OSError | None) -> None:
            if self.peers.get(peer) is None:
                return
            if problem is None:
                self.answer(peer, number, report)
            else:
                reason = f"the change could not be written: {problem.strerror}"
                self.refuse(peer, number, Failure(Code.INTERNAL, reason, detail=str(problem)))

        self.state_writer.when_written(written)

    def refuse(self, peer: str, number: int, failure: Failure) -> None:
        """Refuse a call."""
        self.bus.send(peer, Refused(number, 0, failure))

    def call_self(self, done: Callable[[object], None]) -> int:
        """Return a number for a call of the house's own (peer ``""``); ``done`` gets its report or failure."""
        number = next(self._own_calls)
        self._results[number] = done
        return number

    def _own_result(self, number: int, result: object) -> None:
        done = self._results.pop(number, None)
        if done:
            done(result)

    # ---- effects ---------------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Do what the scheduler wants done."""
        for effect in effects:
            try:
                self._perform(effect)
            except Exception as problem:  # noqa: BLE001 - the other effects are carried out all the same
                self.errors.failure_of(problem, effect=type(effect).__name__)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendMessage(peer, message, payload):
                self._send(peer, message, payload)
            case NotifyGrant(gateway, grant):
                self._tell(gateway, grant)
            case AnswerCall(peer, number, report):
                self._report(peer, number, report)
            case SpawnWorker(worker):
                self._spawn(worker)
            case KillWorker(worker):
                self._kill(worker)
            case KillAfter(worker, seconds):
                self.loop.call_later(seconds, partial(self._kill, worker))
            case FetchModel(model):
                self.fetch(model)
            case ForgetModel(model):
                self.models.forget_adopted(model)
            case LogDecision(level, event, fields):
                getattr(log, level)(event, **fields)

    def _send(self, peer: str, message: Any, payload: bytes) -> None:
        if peer:
            self.bus.send(peer, message, payload)
        elif isinstance(message, Refused):
            self._own_result(message.number, message.failure)

    def _tell(self, gateway: str, grant: GrantedAttempt) -> None:
        """Off the path of the first token: what a worker sends says where it runs, too."""
        if not self._grants:
            self.loop.call_later(GRANT_NOTICE_DELAY_S, self._tell_all)
        self._grants.setdefault(gateway, []).append(grant)

    def _tell_all(self) -> None:
        grants, self._grants = self._grants, {}
        for gateway, its in grants.items():
            self.bus.send(gateway, Granted(its))

    def _report(self, peer: str, number: int, report: object) -> None:
        if peer:
            self.answer(peer, number, report)
        else:
            self._own_result(number, report)

    def _spawn(self, worker: str) -> None:
        died = partial(self._worker_died, worker)
        self.worker_processes[worker] = self.processes.start("worker", "workers", died, {"LEMONBUS_PEER": worker})

    def _kill(self, worker: str) -> None:
        child = self.worker_processes.get(worker)
        if child:
            self.processes.kill(child)

    def endpoint(self, worker: str) -> str:
        """Return where a worker publishes."""
        return events(self.process_context.runtime, self.process_context.boot, worker)

    def _worker_died(self, worker: str, why: str) -> None:
        self.worker_processes.pop(worker, None)
        self.peers.remove(worker)
        self.bus.forget(worker)
        process = self.scheduler.workers.get(worker)
        model = process.model.name if process and process.model else ""
        # At the end of the grace it goes as it was told, with its model.
        goes = self.scheduler.closing and (not model or why == "exit 0")
        expected = process is None or process.state is WorkerState.STOPPING or goes
        of = {"model": model} if model else {}
        (log.info if expected else log.error)("worker gone", worker=worker, **of, why=why)
        failure = Failure(Code.WORKER_GONE, f"The worker of model {model} is gone ({why})", model=model)
        self._tell_all()
        for gateway in self.peers.of("gateway"):
            self.bus.send(gateway, WorkerGone(worker, self.endpoint(worker), failure))
        try:
            self.scheduler.worker_gone(worker, failure, self.loop.now())
        finally:
            self.reconcile()
            self.on_process_ended()
            for endpoint in (
                self.endpoint(worker),
                runs(self.process_context.runtime, self.process_context.boot, worker),
            ):
                socket_file(endpoint).unlink(missing_ok=True)
