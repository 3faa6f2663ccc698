"""The worker's life: spare, checking, loading, ready, its engine's death, leaving. Requests are ``running``'s."""

from __future__ import annotations

import enum
import time
from typing import Any

from msgspec.structs import replace

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.leases import IssueLease, RevokeLease
from protocol.messages.peers import (
    CheckModel,
    EngineDied,
    EngineReady,
    Hello,
    LoadFailed,
    SamplingDefaults,
    Shutdown,
    StartEngine,
)
from protocol.messages.work import Cancel, Run
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import ProcessContext
from workers.backends import registry
from workers.backends.base import Backend, EngineFacts
from workers.engine.connection_pool import EngineConnectionPool
from workers.engine.process import EngineExit, EngineProcess
from workers.engine.readiness import ReadinessProbe
from workers.worker.bus import WorkerBus
from workers.worker.engine_monitor import EngineMonitor
from workers.worker.load_check import check_model
from workers.worker.requests import WorkerRequests


class WorkerState(enum.Enum):
    """Where the worker is."""

    SPARE = enum.auto()
    LOADING = enum.auto()
    READY = enum.auto()
    DOWN = enum.auto()
    """The engine died; Load or Leave comes."""
    LEAVING = enum.auto()


class _EngineSession:
    """One engine and all that lives as long as it does."""

    def __init__(
        self,
        spec: ModelSpec,
        backend: Backend,
        engine: EngineProcess,
        client: EngineConnectionPool,
        monitor: EngineMonitor,
    ) -> None:
        self.spec, self.backend, self.engine, self.client, self.monitor = spec, backend, engine, client, monitor
        self.began = time.monotonic()
        self.readiness: ReadinessProbe | None = None
        self.load_timer: Timer | None = None
        self.failure: Failure | None = None
        """Why it is about to die, if that is our doing."""

    def stop_waiting(self) -> None:
        """It is ready, or never will be."""
        if self.load_timer is not None:
            self.load_timer.cancel()
        if self.readiness is not None:
            self.readiness.cancel()


class WorkerController:
    """One worker."""

    def __init__(self, loop: Loop, bus: WorkerBus, context: ProcessContext, settings: Settings, name: str) -> None:
        """Tie the parts together; nothing is sent yet."""
        self._loop, self._bus, self._context, self._settings = loop, bus, context, settings
        self._name = name
        self._log = logs.get_logger(worker=name)
        self._state = WorkerState.SPARE
        self._requests = WorkerRequests(loop, bus, context, settings, self._leave_if_idle)
        self._session: _EngineSession | None = None
        self._checked: tuple[ModelSpec, int] | None = None
        """The model that was checked last, and what it was trained for."""
        self._grace: Timer | None = None
        self.supervisor_lives = True
        bus.on_message = self._message

    def start(self, pid: int) -> None:
        """Say hello and hold on to the supervisor."""
        self._bus.send(Hello("worker", self._name, pid, self._context.boot))
        self._loop.on_death(self._context.supervisor, self._supervisor_died)

    def _message(self, message: Any, payload: bytes) -> None:
        match message:
            case Run():
                self._requests.run(message, payload)
            case IssueLease():
                self._requests.lend(message)
            case RevokeLease():
                self._requests.recall(message)
            case Cancel():
                self._requests.cancel(RequestKey(message.gateway, message.number, message.attempt), message.reason)
            case CheckModel():
                self._check(message.spec)
            case StartEngine():
                self._load(message.spec)
            case SamplingDefaults():
                self._requests.sample(message.values)
            case Shutdown():
                self.leave(message.grace, message.reason)
            case _:
                pass

    # Loading.

    def _check(self, spec: ModelSpec) -> None:
        try:
            report, trained = check_model(spec, registry.backend_class(spec.recipe)(spec, self._settings))
        except LemonbusError as problem:
            self._bus.send(LoadFailed(problem.failure))
            return
        self._checked = (spec, trained)
        self._bus.send(report)

    def _load(self, spec: ModelSpec) -> None:
        if self._state not in (WorkerState.SPARE, WorkerState.DOWN):
            self._log.warning("a load that does not fit was ignored", model=spec.name, state=self._state.name)
            return
        self._log = logs.get_logger(worker=self._name, model=spec.name)
        try:
            self._session = self._start_session(spec)
        except LemonbusError as problem:
            self._bus.send(LoadFailed(problem.failure))
            return
        except OSError as problem:
            message = f"{spec.name} cannot be loaded: its engine cannot be started"
            self._bus.send(LoadFailed(Failure(Code.LOAD_FAILED, message, model=spec.name, detail=str(problem))))
            return
        self._state = WorkerState.LOADING
        engine = self._session.engine
        self._log.info("engine started", engine_pid=engine.pid, command=" ".join(engine.command))

    def _start_session(self, spec: ModelSpec) -> _EngineSession:
        backend = registry.backend_class(spec.recipe)(spec, self._settings)
        if self._checked is None or self._checked[0] != spec:
            self._checked = (spec, check_model(spec, backend)[1])
        backend.trained_context = self._checked[1]
        backend.prepare()
        engine = EngineProcess(self._loop, backend, self._log, self._requests.line_attribution, self._engine_died)
        client = EngineConnectionPool(self._loop, engine.port, backend.slots + 1, backend.key)
        by_cpu = backend.descriptor.silence_by_cpu
        monitor = EngineMonitor(self._loop, engine, backend.silence, by_cpu, self._requests.busy, self._hung)
        session = _EngineSession(spec, backend, engine, client, monitor)
        session.readiness = ReadinessProbe(self._loop, client, backend, self._ready, self._load_failed)
        late = f"it was not ready within {self._settings.load_timeout:g} s"
        session.load_timer = self._loop.call_later(self._settings.load_timeout, lambda: self._load_failed(late))
        return session

    def _ready(self, facts: EngineFacts) -> None:
        session = self._session
        if session is None or self._state is not WorkerState.LOADING:
            return
        session.stop_waiting()
        self._state = WorkerState.READY
        seconds = time.monotonic() - session.began
        self._log.debug("engine ready", engine_pid=session.engine.pid, seconds=round(seconds, 3))
        self._requests.open(session.backend, session.client, session.monitor, self._log)
        self._bus.send(
            EngineReady(
                slots=facts.slots,
                context=facts.context,
                engine_pid=session.engine.pid,
                backend_url=session.engine.url,
                seconds=seconds,
                version=facts.version,
                rss=session.engine.resident(),
            )
        )

    def _load_failed(self, reason: str) -> None:
        session = self._session
        if session is None or self._state is not WorkerState.LOADING:
            return
        session.stop_waiting()
        message = f"{session.spec.name} cannot be loaded: {session.backend.program} did not become ready"
        session.failure = Failure(Code.LOAD_FAILED, message, model=session.spec.name, detail=reason)
        session.engine.stop()

    # The engine's death.

    def _hung(self) -> None:
        session = self._session
        if session is not None:
            silence = session.backend.silence
            message = f"{session.backend.program} made no progress for {silence:g} s and was ended"
            session.failure = Failure(Code.HUNG, message, model=session.spec.name)
            self._log.error("engine hangs", engine_pid=session.engine.pid, silence=silence)

    def _engine_died(self, death: EngineExit) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.stop_waiting()
        session.monitor.end()
        session.client.drain()
        session.client.close()
        said = f"{session.backend.program} {death.how}"
        failure = session.failure or Failure(Code.BACKEND_DIED, said, model=session.spec.name)
        failure = replace(failure, detail=death.last)
        if self._state is WorkerState.LEAVING:
            # It is not told to end while requests run: if some still do, it died.
            self._requests.fail_all(failure)
            self._loop.stop()
            return
        self._log.error("engine died", engine_pid=session.engine.pid, how=said, last=death.last)
        if self._state is WorkerState.READY:
            self._state = WorkerState.DOWN
            self._requests.fail_all(failure)
            self._bus.send(EngineDied(failure))
            return
        self._state = WorkerState.SPARE
        name = session.spec.name
        failure = session.failure or Failure(Code.LOAD_FAILED, f"{name} cannot be loaded: {said}", model=name)
        detail = "\n".join(part for part in (failure.detail, said, death.last) if part)
        self._bus.send(LoadFailed(replace(failure, detail=detail), started=True))

    # The end.

    def leave(self, grace: float, reason: str) -> None:
        """Finish what runs within ``grace`` seconds, then end."""
        name = self._session.spec.name if self._session else "the model"
        self._leave(grace, Failure(Code.UNLOADED, f"{name} was unloaded" + (f": {reason}" if reason else "")))

    def _supervisor_died(self) -> None:
        self.supervisor_lives = False
        self._log.warning("supervisor died", running=len(self._requests))
        message = "the supervisor is gone, and the time that was left is over"
        self._leave(self._settings.grace, Failure(Code.SUPERVISOR_LOST, message))

    def _leave(self, grace: float, failure: Failure) -> None:
        self._state = WorkerState.LEAVING
        self._requests.close()
        if self._grace is not None:
            self._grace.cancel()
        self._grace = self._loop.call_later(grace, lambda: self._grace_over(failure))
        self._leave_if_idle()

    def _grace_over(self, failure: Failure) -> None:
        if self._session is not None:
            # An engine does not end while it has a stream to write.
            self._session.client.close()
        self._requests.fail_all(failure)
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._state is not WorkerState.LEAVING or len(self._requests):
            return
        if self._session is None:
            self._loop.stop()
        else:
            self._session.stop_waiting()
            self._session.client.close()
            self._session.engine.stop()
