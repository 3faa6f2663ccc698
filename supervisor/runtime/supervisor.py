"""The supervisor: owns the bus, the processes and the scheduler, and connects them. The scheduler decides.

A message, the end of a process or a timer comes in. The scheduler decides what follows, as a list of effects, and the
supervisor has them carried out (:mod:`supervisor.runtime.effect_executor`). :mod:`supervisor.handlers` has the meaning
of each message. An exception in a handler, in the scheduler or in an effect fails that one step and is counted
(:mod:`supervisor.internal_errors`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from protocol import ids
from protocol.config.api_keys import keys_of_settings
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.health import StatsReport
from protocol.messages.metrics import GetMetrics, MetricsCollected, RequestsObserved
from protocol.messages.peers import Hello, ModelInUse, Pong, Welcome, WorkerGone
from protocol.messages.work import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptProgress,
    AttemptsEnded,
    Cancel,
    KeyUsage,
    RateLimits,
    Refused,
    SubmitRequest,
)
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.bus.grant_notices import GrantNotices
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.limits.admission import KeyAdmission
from supervisor.metrics.collection import MetricsCollections
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.models.options.model_configuration import ConfiguredPolicies
from supervisor.models.registry import ModelRegistry
from supervisor.processes import left_files
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.download_registry import DownloadRegistry
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.processes.peer_liveness import PeerRegistry
from supervisor.processes.peer_monitor import PeerMonitor
from supervisor.processes.setting_effects import gateway_fingerprint, worker_fingerprint
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.responses.journaled_store import JournaledStore
from supervisor.responses.response_store import StoreLimits
from supervisor.runtime.effect_executor import EffectExecutor
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.runtime.key_file_watch import KeyFileWatch
from supervisor.runtime.loaded_code import LOADED_CODE
from supervisor.runtime.logbook import LogBook
from supervisor.runtime.scheduler_limits import scheduler_limits
from supervisor.runtime.state_writer import StateWriter
from supervisor.runtime.transition import Transition
from supervisor.scheduler.scheduler import Scheduler

RECONCILE_INTERVAL_S: Final = 0.25
"""The scheduler looks at everything this often even if nothing happens: time alone makes a request or a model due."""

_SETTLED_MESSAGES: Final = frozenset(
    {SubmitRequest, Cancel, AttemptEnded, AttemptsEnded, Pong, AttemptAbandoned, AttemptProgress}
    | {RequestsObserved, GetMetrics, MetricsCollected}
)
"""After these, the scheduler need not look at all models again, unless something waits or moves: see
:func:`supervisor.scheduler.reconcile.reconcile_unless_settled`."""

log = logs.get_logger()
Handler = Callable[["Supervisor", str, Any, bytes], None]
"""(supervisor, the peer that sent the message, the message, its payload)."""


class Supervisor:
    """All state of the supervisor process."""

    transition: Transition | None = None
    """While this supervisor takes over from another one, or hands over to one."""

    def __init__(self, settings: Settings, process_context: ProcessContext, loop: Loop, listen_fd: int) -> None:
        """Open the bus; start no process yet. The caller holds the lock of the runtime directory and the listener.

        Raises OSError if the sockets of the bus cannot be made.
        """
        self.settings = settings
        self.process_context = process_context
        self.loop = loop
        self.listen_fd = listen_fd
        self.errors = InternalErrors()
        self.started_at = loop.now()
        self.state_writer = StateWriter(loop)
        self.models = ModelRegistry(settings, self.state_writer.finish)
        self.key_file = KeyFileWatch(loop, settings)
        self.logbook = LogBook(process_context.boot, settings.log_retained)
        self.peers = PeerRegistry(settings.peer_silence)
        self.downloads = DownloadRegistry()
        self.responses = JournaledStore(
            StoreLimits(settings.response_store_entries, settings.response_store_bytes, settings.response_store_ttl)
        )
        self.processes = ChildProcesses(loop, process_context)
        self.bus = SupervisorBus(loop, process_context.runtime, process_context.boot)
        self._peer_monitor = PeerMonitor(loop, self.bus, self.peers, self.kill_process)
        self.worker_barrier = WorkerBarrier(loop, self.bus)
        self.metrics_collections = MetricsCollections(loop, self.bus)
        self.metrics = ServerMetrics()
        self.scheduler = Scheduler(
            scheduler_limits(settings),
            lambda: ids.peer_id("worker"),
            self.metrics,
            ConfiguredPolicies(self.models.configuration, self.models.known),
        )
        self.admission = KeyAdmission(
            loop, self.worker_barrier, self.scheduler, self.errors, self._report_usage, self._reconcile_after_request
        )
        self.workers = WorkerProcesses(
            self.processes, process_context, self._worker_ended, worker_fingerprint(settings)
        )
        self.gateway = GatewayProcess(loop, self.processes, self.peers, listen_fd, gateway_fingerprint(settings))
        self.gateway.closing = lambda: self.scheduler.view.closing
        self.gateway.on_ended = self._gateway_ended
        self.running_names: dict[str, str] = {}
        """Clients' name for a running model → its registered name, so that it is not looked up again."""
        self.job_processes: dict[str, ChildProcess] = {}
        self.job_orders: dict[str, msgspec.Struct] = {}
        """Job → its order, as long as the job runs."""
        self.stats_by_model: dict[str, StatsReport] = {}
        """Registered name of a model → figures of its last generation, latest model last."""
        self.leaving_peers: set[str] = set()
        """Peers of another version that were told to leave. What else they say is not understood."""
        self.former_workers: dict[str, ModelInUse | None] = {}
        """Workers of another version that finish their requests → their models."""
        self.on_worker_ended: list[Callable[[str], None]] = []
        """Called with the name of each worker that has ended."""
        self.on_worker_hello: list[Callable[[str], None]] = []
        """Called with the name of each worker that has said Hello."""
        self.on_closing: list[Callable[[], None]] = []
        """Called when the server begins to end."""
        self.on_process_ended: Callable[[], None] = lambda: None
        """Called when a process has ended, because a shutdown may now be complete."""
        self.calls = GatewayCalls(self.bus, self.peers, self.state_writer)
        self.internal_calls = InternalCalls()
        self._grant_notices = GrantNotices(loop, self.bus)
        self.effect_executor = EffectExecutor(
            loop,
            self.bus,
            self.workers,
            self.models,
            self._grant_notices,
            self.internal_calls,
            self.errors,
            self.calls.answer,
            self.worker_barrier,
        )
        self._handlers: dict[type, Handler] = {}

    # Life

    def open(self, handlers: Mapping[type, Handler]) -> None:
        """Read the bus from now on, and start the gateway. Serve at once, unless there is something to take over."""
        self._handlers.update(handlers)
        self.bus.listen(self.received, self._logged, self._peer_monitor.outbox_overflowed, self.other_version)
        logs.set_sink(self._logged)
        self._peer_monitor.start()
        self.loop.after_each_iteration(self._send_log_batches)
        self.gateway.start()
        if self.transition is None:
            self.serve()

    def serve(self) -> None:
        """Let the scheduler decide from now on; it starts the first spare worker."""
        left_files.remove_from_now_on(self.loop, self.process_context, partial(self.peers.of, "gateway"))
        self.loop.every(RECONCILE_INTERVAL_S, self.reconcile)
        self.reconcile()

    def when_serving(self, callback: Callable[[], None]) -> None:
        """Call back as soon as everything is taken over from an earlier supervisor; now, if there is none."""
        if self.transition is None:
            callback()
        else:
            self.transition.when_over(callback)

    def reconcile(self) -> None:
        """Let the scheduler do what the present state allows, and carry out its effects."""
        while self.models.problems:
            log.warning("model files", problem=self.models.problems.pop(0))
        self._reconcile(self.scheduler.reconcile)

    def _reconcile(self, decide: Callable[[float], None]) -> None:
        """Let the scheduler decide. Effects from before an exception are also carried out: peers wait for them."""
        if self.transition is not None:
            return
        try:
            decide(self.loop.now())
        except Exception as problem:  # noqa: BLE001 - logged and counted; the next event tries again
            self.errors.failure_of(problem, where="scheduler")
        self.execute_effects()

    def _reconcile_after_request(self) -> None:
        self._reconcile(self.scheduler.reconcile_unless_settled)

    def execute_effects(self) -> None:
        """Carry out what the scheduler has decided since the last time."""
        self.effect_executor.execute(self.scheduler.effects())

    def welcome(self, peer: str, role: str) -> None:
        """Answer the Hello of a peer."""
        keys = keys_of_settings(self.settings) if role == "gateway" else None
        self.bus.send(peer, Welcome(self.process_context.boot, os.getpid(), LOADED_CODE, keys))

    def _report_usage(self, key: RequestKey, limits: RateLimits) -> None:
        """Tell a gateway the remaining limits of a request's key."""
        self.bus.send(key.gateway, KeyUsage(key.number, key.attempt, limits))

    # Logs

    def _logged(self, record: bytes) -> None:
        self.logbook.append(record)

    def _send_log_batches(self) -> None:
        for peer, batch in self.logbook.batches(self.bus.is_reading):
            self.bus.send(peer, batch)

    # Messages

    def received(self, peer: str, message: Any, payload: bytes) -> None:
        """Handle a message, or leave it to the transition."""
        if self.transition is not None:
            self.transition.received(peer, message, payload)
            return
        self.handle(peer, message, payload)
        if type(message) in _SETTLED_MESSAGES:
            self._reconcile_after_request()
        else:
            self.reconcile()

    def handle(self, peer: str, message: Any, payload: bytes) -> None:
        """Handle a message. The next :meth:`reconcile` decides what follows from it."""
        known = self.peers.message_received(peer, self.loop.now())
        handler = self._handlers.get(type(message))
        if handler is None or not (known or isinstance(message, Hello)):
            log.warning("unexpected message", peer=peer, message=type(message).__name__)
            return
        try:
            handler(self, peer, message, payload)
        except Exception as problem:  # noqa: BLE001 - the message has failed, not the supervisor
            self._handler_failed(peer, message, problem)

    def _handler_failed(self, peer: str, message: Any, problem: Exception) -> None:
        """Answer a gateway's message whose handler raised, and remove a failed request from the scheduler."""
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
            except Exception as other:  # noqa: BLE001 - counted; the client is answered anyway
                self.errors.failure_of(other, **context)
        self.bus.send(peer, Refused(getattr(message, "number", 0), attempt, failure))

    def other_version(self, peer: str, version: int) -> None:
        """Handle a message of a process with another version: the installed lemonbus has changed under this server."""
        if peer in self.leaving_peers:
            return
        self.scheduler.version_mismatch(peer, version, self.loop.now())
        if peer in self.job_processes:
            self.kill_process(peer)
        self.reconcile()

    # Ends of processes

    def kill_process(self, name: str) -> None:
        """Kill the process of this name, if it still runs. Everything else follows from its end."""
        self.workers.kill(name)
        self.gateway.kill(name)
        if name in self.job_processes:
            self.processes.kill(self.job_processes[name])

    def _gateway_ended(self) -> None:
        self.on_process_ended()

    def _worker_ended(self, worker: str, why: str) -> None:
        if self.transition is not None:
            self.transition.worker_ended(worker)
        self.peers.remove(worker)
        self.bus.forget(worker)
        known = self.scheduler.view.worker(worker)
        model = known.model if known is not None else ""
        # At the end of the grace period a worker ends as it was told to, together with its model.
        asked_to_end = self.scheduler.view.closing and (not model or why == "exit 0")
        expected = known is None or known.is_stopping or asked_to_end
        context = {"model": model} if model else {}
        (log.info if expected else log.error)("worker gone", worker=worker, **context, why=why)
        worker_name = f"The worker of model {model}" if model else "A worker without a model"
        failure = Failure(Code.WORKER_GONE, f"{worker_name} is gone ({why})", model=model)
        self._grant_notices.send()
        for gateway in self.peers.of("gateway"):
            self.bus.send(gateway, WorkerGone(worker, self.workers.endpoint(worker), failure))
        try:
            self.scheduler.worker_gone(worker, failure, self.loop.now())
        finally:
            for on_ended in self.on_worker_ended:
                on_ended(worker)
            self.reconcile()
            self.on_process_ended()
