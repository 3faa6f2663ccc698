"""The worker's life: spare, loading, ready, engine lost, leaving. Its requests are in :mod:`workers.requests`.

Invariants:

* The state only changes along the worker's own table in `protocol/worker_states.py`.
* There is a session exactly while an engine's process exists.
* Each `StartEngine` is answered with `EngineReady` or `LoadFailed`.
* A worker that no supervisor has ever welcomed ends after ``peer_silence``: either the two run different code, or their
  sockets are gone, so no message would arrive.
* The supervisor's end changes nothing: ``supervisor_link.py`` connects to the next one. The keeper's end is the
  server's.
* The process ends only when no request is left or the grace period is over, and not before its engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.engines import (
    CheckModel,
    EngineDied,
    LoadFailed,
    LoadProgressed,
    MemoryMeasured,
    SamplingDefaults,
    SetRequestRules,
    StartEngine,
)
from protocol.messages.metrics import CollectMetrics, MetricsCollected
from protocol.messages.peers import Shutdown, Welcome
from protocol.messages.recovery import RememberState, WorkerSnapshot
from protocol.messages.work import AttemptsEnded, Cancel, Run
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import ProcessContext
from protocol.state_table import next_state
from protocol.worker_states import OWN_TRANSITIONS, WorkerEvent, WorkerState
from workers.backends.engine_facts import EngineFacts
from workers.engine.exit_cause import EngineExit, ExitCause
from workers.prompt_cache.engine_caches import tidy_in_background
from workers.requests.worker_requests import WorkerRequests
from workers.worker import engine_failures
from workers.worker.bus import WorkerBus
from workers.worker.engine_metrics import EngineMetricsReader
from workers.worker.engine_reports import engine_ready
from workers.worker.engine_session import EngineSession
from workers.worker.model_loader import ModelLoader
from workers.worker.snapshot import EngineReport, ModelRecord, SentReport, unread, worker_snapshot
from workers.worker.supervisor_link import SupervisorLink, hello


class WorkerController:
    """One worker."""

    def __init__(self, loop: Loop, bus: WorkerBus, context: ProcessContext, settings: Settings, name: str) -> None:
        """Connect the parts; nothing is sent yet."""
        self._loop, self._bus, self._settings = loop, bus, settings
        self._name = name
        self._log = logs.get_logger(worker=name)
        self._state = WorkerState.SPARE
        self._requests = WorkerRequests(loop, bus, context, settings, self._leave_if_idle)
        self._loader = ModelLoader(loop, settings, self._requests, self, bus.send)
        self._session: EngineSession | None = None
        self._metrics: EngineMetricsReader | None = None
        """That of the ready engine."""
        self._model = ModelRecord()
        self._clock_shift = 0
        """See :class:`~workers.backends.base.Backend`."""
        self._grace_timer: Timer | None = None
        self._save_caches = False
        """Whether the engine's prompt caches are kept when it ends."""
        self._welcome_timer: Timer | None = None
        self.exit_code = 0
        self._link = SupervisorLink(
            loop,
            bus,
            context,
            hello("worker", name, context, bus),
            self._snapshot,
            self._report_again,
            self._keeper_died,
        )
        bus.on_message = self._handle
        bus.tokens_so_far = self._requests.tokens_so_far

    @property
    def server_lives(self) -> bool:
        """Whether the keeper has not ended."""
        return self._link.server_lives

    def start(self) -> None:
        """Say hello, and watch supervisor and keeper."""
        self._link.start()
        self._welcome_timer = self._loop.call_later(self._settings.peer_silence, self._not_welcomed)

    def _welcomed(self, message: Welcome) -> None:
        self._link.take_welcome(message)
        if message.clock:
            self._clock_shift = round(message.clock - time.time())
            if self._session is not None:
                self._session.backend.clock_shift = self._clock_shift
        if self._welcome_timer is not None:
            self._welcome_timer.cancel()
            self._welcome_timer = None
            tidy_in_background(self._loop, self._settings, self._log)

    def _snapshot(self) -> WorkerSnapshot:
        return worker_snapshot(
            self._state,
            self._model,
            self._requests.attempts,
            self._requests.ended,
            self._requests.last_use,
            self._bus.pings,
            self._loop.now(),
        )

    def _report(self, message: EngineReport) -> None:
        """Report how the engine ended."""
        self._bus.send(message)
        self._model.report = SentReport(message, self._bus.pings)

    def _report_again(self) -> None:
        """Send a new supervisor what the last one may not have read; the snapshot before it describes the time before."""
        report = unread(self._model.report, self._bus.pings)
        if report is not None and self._state is not WorkerState.LEAVING:
            self._report(report)

    def _not_welcomed(self) -> None:
        self._log.error("the supervisor does not answer this worker, which ends", seconds=self._settings.peer_silence)
        self.exit_code = 1
        self._leave(0.0, Failure(Code.SUPERVISOR_LOST, "the supervisor does not answer"))

    def _handle(self, message: Any, payload: bytes) -> None:
        match message:
            case Welcome():
                self._welcomed(message)
            case Run():
                self._requests.run(message, payload)
            case Cancel():
                self._requests.cancel(RequestKey(message.gateway, message.number, message.attempt), message.reason)
            case CheckModel():
                self._loader.answer(message.spec, partial(self._loader.check, message))
            case StartEngine():
                self._loader.answer(message.spec, partial(self._start_engine, message))
            case CollectMetrics():
                self._collect_metrics(message.number)
            case SamplingDefaults() | SetRequestRules():
                self._requests.configure(message)
            case RememberState():
                self._model.remembered = message.state
            case Shutdown():
                self.leave(message.grace, message.reason, draining=message.draining, save=not message.draining)
            case _:
                pass

    def _transition(self, event: WorkerEvent) -> None:
        self._state = next_state(OWN_TRANSITIONS, self._state, event)

    # Loading.

    def _start_engine(self, order: StartEngine, *, restore_caches: bool = True) -> None:
        if WorkerEvent.LOAD not in OWN_TRANSITIONS[self._state]:
            self._log.warning(
                "StartEngine ignored: not expected in this state", model=order.spec.name, state=self._state.name
            )
            return
        self._log = logs.get_logger(worker=self._name, model=order.spec.name)
        # What an engine had read when it died may be the reason.
        restore_caches = restore_caches and self._state is not WorkerState.ENGINE_LOST
        self._session = self._loader.start(order, self._log, restore_caches=restore_caches)
        self._session.backend.clock_shift = self._clock_shift
        self._transition(WorkerEvent.LOAD)
        self._model.started(order, self._loop.now())

    def engine_ready(self, session: EngineSession, facts: EngineFacts) -> None:
        """See :class:`~workers.worker.engine_session.SessionOwner`."""
        if self._state is WorkerState.LEAVING:
            return
        self._transition(WorkerEvent.READY)
        self._requests.open(session, self._log)
        self._metrics = EngineMetricsReader(self._loop, session.backend, session.pool, self._bus.send)
        self._model.facts, self._model.ready_at = engine_ready(session, facts), self._loop.now()
        self._bus.send(self._model.facts)

    def load_progressed(self, progress: LoadProgressed) -> None:
        """See :class:`~workers.worker.engine_session.SessionOwner`."""
        if self._state is WorkerState.LOADING:
            self._model.progress = progress
            self._bus.send(progress)

    def memory_grew(self, session: EngineSession) -> None:
        """See :class:`~workers.worker.engine_session.SessionOwner`."""
        if self._model.facts is not None and session.memory_difference is not None:
            self._model.facts = replace(self._model.facts, memory_difference=session.memory_difference)
            self._bus.send(MemoryMeasured(session.memory_difference))

    def _collect_metrics(self, number: int) -> None:
        if self._metrics is not None:
            self._metrics.read(number)
        else:
            self._bus.send(MetricsCollected(number))

    # The engine's end.

    def engine_exited(self, session: EngineSession, exit_: EngineExit) -> None:
        """See :class:`~workers.worker.engine_session.SessionOwner`."""
        self._session = self._metrics = None
        state = self._state
        how = f"{session.backend.program} {exit_.reason}"
        failure = replace(session.failure or engine_failures.died(session.backend, exit_), detail=exit_.output)
        by_request = engine_failures.by_request(session.failure, exit_, outgrown=session.outgrown)
        causes = self._requests.possible_causes(loops=session.loops) if by_request or session.loops else []
        if state is WorkerState.LEAVING:
            # It is not told to end while requests run: if some still do, it died.
            self._cut_off(failure, causes)
            self._loop.stop()
            return
        self._transition(WorkerEvent.DIED if state is WorkerState.READY else WorkerEvent.LOAD_FAILED)
        order = self._model.order
        if session.caches_unusable and state is WorkerState.LOADING and order is not None:
            self._log.warning("engine starts again, without kept prompt caches", reason=how, output=exit_.output)
            again = replace(order, age=self._loop.now() - self._model.load_began)
            self._loader.answer(order.spec, partial(self._start_engine, again, restore_caches=False))
            return
        self._log.error("engine died", engine_pid=session.engine.pid, reason=how, output=exit_.output)
        if state is WorkerState.READY:
            killed = session.failure is None and exit_.cause in (ExitCause.MEMORY, ExitCause.KILLED)
            self._report(EngineDied(failure, self._requests.fail_all(failure, causes), causes, killed=killed))
        else:
            failed = engine_failures.of_load(session.backend, session.failure, how, exit_.output)
            self._report(LoadFailed(failed, started=True, memory_difference=session.memory_difference))

    # The worker's end.

    def leave(self, grace: float, reason: str, *, draining: bool = False, save: bool = False) -> None:
        """Let running requests end within ``grace`` seconds, then end this process.

        ``draining``: the whole server ends. ``save``: an idle engine's prompt caches may be kept first, if it keeps
        any.
        """
        name = self._session.spec.name if self._session else "the model"
        why = f": {reason}" if reason else ""
        unloaded = Failure(Code.UNLOADED, f"{name} was unloaded{why}")
        self._leave(grace, Failure(Code.DRAINING, f"the server stopped{why}") if draining else unloaded, save=save)

    def _keeper_died(self) -> None:
        self._log.warning("the server's main process has died", running=len(self._requests))
        message = "the server has died, and the grace period is over"
        self._leave(self._settings.grace, Failure(Code.SUPERVISOR_LOST, message))

    def _leave(self, grace: float, failure: Failure, *, save: bool = False) -> None:
        # An engine that is already being ended stays as it is. A second order without ``save`` ends a save.
        self._save_caches = save and (self._save_caches or self._state is WorkerState.READY)
        if self._state is not WorkerState.LEAVING:
            self._transition(WorkerEvent.STOP)
        self._requests.close()
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        if len(self._requests):
            self._grace_timer = self._loop.call_later(grace, lambda: self._grace_over(failure))
        self._leave_if_idle()

    def _grace_over(self, failure: Failure) -> None:
        self._save_caches = False  # an engine whose requests are cut off may hang
        if self._session is not None:
            # An engine does not end while it has a stream to write.
            self._session.pool.close()
        self._cut_off(failure)
        self._leave_if_idle()

    def _cut_off(self, failure: Failure, causes: Sequence[RequestKey] = ()) -> None:
        """End the requests of a worker that leaves, and report what they have used: nothing else would."""
        ends = self._requests.fail_all(failure, causes)
        if ends:
            self._bus.send(AttemptsEnded(ends))

    def _leave_if_idle(self) -> None:
        if self._state is not WorkerState.LEAVING or len(self._requests):
            return
        if self._session is None:
            self._loop.stop()
        elif self._save_caches:
            self._session.save_and_stop()
        else:
            self._session.stop()
