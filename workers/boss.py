"""The worker's life: spare, checking, loading, ready, its engine's death, leaving. Requests are ``running``'s."""

from __future__ import annotations

import enum
import time
from typing import Any

from msgspec.structs import replace

from protocol import logs
from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.leases import Lend, Recall
from protocol.loop import Loop, Timer
from protocol.recipes import ModelSpec
from protocol.settings import Settings
from protocol.staff import Check, EngineDied, Hello, Leave, Load, LoadFailed, Ready, Sampling
from protocol.surroundings import Surroundings
from protocol.work import Cancel, Run
from workers import backends
from workers.awakening import Awakening
from workers.backends.backend import Backend, EngineFacts
from workers.bus import Bus
from workers.check import check
from workers.client import Client
from workers.engine import Death, Engine
from workers.guard import Guard
from workers.running import Running


class State(enum.Enum):
    """Where the worker is."""

    SPARE = enum.auto()
    LOADING = enum.auto()
    READY = enum.auto()
    DOWN = enum.auto()
    """The engine died; Load or Leave comes."""
    LEAVING = enum.auto()


class _Seat:
    """One engine and all that lives as long as it does."""

    def __init__(self, spec: ModelSpec, backend: Backend, engine: Engine, client: Client, guard: Guard) -> None:
        self.spec, self.backend, self.engine, self.client, self.guard = spec, backend, engine, client, guard
        self.began = time.monotonic()
        self.awakening: Awakening | None = None
        self.patience: Timer | None = None
        self.failure: Failure | None = None
        """Why it is about to die, if that is our doing."""

    def awake(self) -> None:
        """It is ready, or never will be."""
        if self.patience is not None:
            self.patience.cancel()
        if self.awakening is not None:
            self.awakening.cancel()


class Boss:
    """One worker."""

    def __init__(self, loop: Loop, bus: Bus, house: Surroundings, settings: Settings, name: str) -> None:
        """Tie the parts together; nothing is sent yet."""
        self._loop, self._bus, self._house, self._settings = loop, bus, house, settings
        self._name = name
        self._log = logs.get(worker=name)
        self._state = State.SPARE
        self._running = Running(loop, bus, house, settings, self._look_at_leaving)
        self._seat: _Seat | None = None
        self._checked: tuple[ModelSpec, int] | None = None
        """The model that was checked last, and what it was trained for."""
        self._grace: Timer | None = None
        self.supervisor_lives = True
        bus.on_message = self._message

    def start(self, pid: int) -> None:
        """Say hello and hold on to the supervisor."""
        self._bus.send(Hello("worker", self._name, pid, self._house.boot))
        self._loop.on_death(self._house.supervisor, self._supervisor_died)

    def _message(self, message: Any, payload: bytes) -> None:
        match message:
            case Run():
                self._running.run(message, payload)
            case Lend():
                self._running.lend(message)
            case Recall():
                self._running.recall(message)
            case Cancel():
                self._running.cancel(RequestKey(message.gateway, message.number, message.attempt), message.reason)
            case Check():
                self._check(message.spec)
            case Load():
                self._load(message.spec)
            case Sampling():
                self._running.sample(message.values)
            case Leave():
                self.leave(message.grace, message.reason)
            case _:
                pass

    # Loading.

    def _check(self, spec: ModelSpec) -> None:
        try:
            report, trained = check(spec, backends.backend_class(spec.recipe)(spec, self._settings))
        except LemonbusError as problem:
            self._bus.send(LoadFailed(problem.failure))
            return
        self._checked = (spec, trained)
        self._bus.send(report)

    def _load(self, spec: ModelSpec) -> None:
        if self._state not in (State.SPARE, State.DOWN):
            self._log.warning("a load that does not fit was ignored", model=spec.name, state=self._state.name)
            return
        self._log = logs.get(worker=self._name, model=spec.name)
        try:
            self._seat = self._seated(spec)
        except LemonbusError as problem:
            self._bus.send(LoadFailed(problem.failure))
            return
        except OSError as problem:
            message = f"{spec.name} cannot be loaded: its engine cannot be started"
            self._bus.send(LoadFailed(Failure(Code.LOAD_FAILED, message, model=spec.name, detail=str(problem))))
            return
        self._state = State.LOADING
        engine = self._seat.engine
        self._log.info("engine started", engine_pid=engine.pid, command=" ".join(engine.command))

    def _seated(self, spec: ModelSpec) -> _Seat:
        backend = backends.backend_class(spec.recipe)(spec, self._settings)
        if self._checked is None or self._checked[0] != spec:
            self._checked = (spec, check(spec, backend)[1])
        backend.trained_context = self._checked[1]
        backend.prepare()
        engine = Engine(self._loop, backend, self._log, self._running.whose, self._engine_died)
        client = Client(self._loop, engine.port, backend.slots + 1, backend.key)
        by_cpu = backend.descriptor.silence_by_cpu
        guard = Guard(self._loop, engine, backend.silence, by_cpu, self._running.busy, self._hung)
        seat = _Seat(spec, backend, engine, client, guard)
        seat.awakening = Awakening(self._loop, client, backend, self._ready, self._load_failed)
        late = f"it was not ready within {self._settings.load_timeout:g} s"
        seat.patience = self._loop.call_later(self._settings.load_timeout, lambda: self._load_failed(late))
        return seat

    def _ready(self, facts: EngineFacts) -> None:
        seat = self._seat
        if seat is None or self._state is not State.LOADING:
            return
        seat.awake()
        self._state = State.READY
        seconds = time.monotonic() - seat.began
        self._log.debug("engine ready", engine_pid=seat.engine.pid, seconds=round(seconds, 3))
        self._running.open(seat.backend, seat.client, seat.guard, self._log)
        self._bus.send(
            Ready(
                slots=facts.slots,
                context=facts.context,
                engine_pid=seat.engine.pid,
                backend_url=seat.engine.url,
                seconds=seconds,
                version=facts.version,
                rss=seat.engine.resident(),
            )
        )

    def _load_failed(self, reason: str) -> None:
        seat = self._seat
        if seat is None or self._state is not State.LOADING:
            return
        seat.awake()
        message = f"{seat.spec.name} cannot be loaded: {seat.backend.program} did not become ready"
        seat.failure = Failure(Code.LOAD_FAILED, message, model=seat.spec.name, detail=reason)
        seat.engine.stop()

    # The engine's death.

    def _hung(self) -> None:
        seat = self._seat
        if seat is not None:
            silence = seat.backend.silence
            message = f"{seat.backend.program} made no progress for {silence:g} s and was ended"
            seat.failure = Failure(Code.HUNG, message, model=seat.spec.name)
            self._log.error("engine hangs", engine_pid=seat.engine.pid, silence=silence)

    def _engine_died(self, death: Death) -> None:
        seat, self._seat = self._seat, None
        if seat is None:
            return
        seat.awake()
        seat.guard.end()
        seat.client.drain()
        seat.client.close()
        said = f"{seat.backend.program} {death.how}"
        failure = seat.failure or Failure(Code.BACKEND_DIED, said, model=seat.spec.name)
        failure = replace(failure, detail=death.last)
        if self._state is State.LEAVING:
            # It is not told to end while requests run: if some still do, it died.
            self._running.fail_all(failure)
            self._loop.stop()
            return
        self._log.error("engine died", engine_pid=seat.engine.pid, how=said, last=death.last)
        if self._state is State.READY:
            self._state = State.DOWN
            self._running.fail_all(failure)
            self._bus.send(EngineDied(failure))
            return
        self._state = State.SPARE
        name = seat.spec.name
        failure = seat.failure or Failure(Code.LOAD_FAILED, f"{name} cannot be loaded: {said}", model=name)
        detail = "\n".join(part for part in (failure.detail, said, death.last) if part)
        self._bus.send(LoadFailed(replace(failure, detail=detail), started=True))

    # The end.

    def leave(self, grace: float, reason: str) -> None:
        """Finish what runs within ``grace`` seconds, then end."""
        name = self._seat.spec.name if self._seat else "the model"
        self._leave(grace, Failure(Code.UNLOADED, f"{name} was unloaded" + (f": {reason}" if reason else "")))

    def _supervisor_died(self) -> None:
        self.supervisor_lives = False
        self._log.warning("supervisor died", running=len(self._running))
        message = "the supervisor is gone, and the time that was left is over"
        self._leave(self._settings.grace, Failure(Code.SUPERVISOR_LOST, message))

    def _leave(self, grace: float, failure: Failure) -> None:
        self._state = State.LEAVING
        self._running.close()
        if self._grace is not None:
            self._grace.cancel()
        self._grace = self._loop.call_later(grace, lambda: self._grace_over(failure))
        self._look_at_leaving()

    def _grace_over(self, failure: Failure) -> None:
        if self._seat is not None:
            # An engine does not end while it has a stream to write.
            self._seat.client.close()
        self._running.fail_all(failure)
        self._look_at_leaving()

    def _look_at_leaving(self) -> None:
        if self._state is not State.LEAVING or len(self._running):
            return
        if self._seat is None:
            self._loop.stop()
        else:
            self._seat.awake()
            self._seat.client.close()
            self._seat.engine.stop()
