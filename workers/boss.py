"""The worker's state machine: check, load, run, cancel, die, leave. Sockets and processes are owned elsewhere."""

from __future__ import annotations

import enum
import math
import signal
import time
from pathlib import Path
from typing import Any, Final

from protocol import endpoints, logs
from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.loop import Loop, Timer
from protocol.recipes import IdleCheck, ModelSpec
from protocol.settings import Settings
from protocol.staff import Check, EngineDied, Hello, Leave, Load, LoadFailed, Ping, Pong, Ready
from protocol.surroundings import Surroundings
from protocol.work import Cancel, Idle, Run
from workers import backends
from workers.attempt import Attempt, Phase
from workers.audience import Audience
from workers.awakening import Awakening, Whole
from workers.backends.backend import Backend, EngineFacts
from workers.bus import Bus
from workers.check import check
from workers.client import Client
from workers.desk import RETRY_S, Desk
from workers.engine import Death, Engine
from workers.watchdog import Verdict, Watchdog

IDLE_POLL_S: Final = 0.008
HANG_UP_AFTER_S: Final = 0.25
"""An engine that has not yet taken a request up is given this long, so that its hanging up is noticed at once."""

DEATH_SHOWS_S: Final = 1.0
ALIVE_EVERY_S: Final = 1.0


class State(enum.Enum):
    """Where the worker is."""

    SPARE = enum.auto()
    LOADING = enum.auto()
    READY = enum.auto()
    DOWN = enum.auto()
    """The engine died; Load or Leave comes."""
    LEAVING = enum.auto()


class Boss:
    """One worker."""

    def __init__(self, loop: Loop, bus: Bus, house: Surroundings, settings: Settings, name: str) -> None:
        """Tie the parts together; nothing is sent yet."""
        self._loop, self._bus, self._house, self._settings = loop, bus, house, settings
        self._name = name
        self._log = logs.get(worker=name)
        self._state = State.SPARE
        self._audience = Audience()
        self._desk = Desk(bus.publish)
        self._attempts: dict[RequestKey, Attempt] = {}
        self._spec: ModelSpec | None = None
        self._backend: Backend | None = None
        self._trained: tuple[ModelSpec, int] | None = None
        self._engine: Engine | None = None
        self._client: Client | None = None
        self._awakening: Awakening | None = None
        self._watchdog = Watchdog(settings.silence)
        self._failure: Failure | None = None
        """Why the engine is about to die, if that is our doing."""
        self._load_timer: Timer | None = None
        self._grace_timer: Timer | None = None
        self._watch_timer: Timer | None = None
        self._poll_timer: Timer | None = None
        self._flush_timer: Timer | None = None
        self._load_began = 0.0
        self._orphaned = False
        bus.on_message = self._message
        bus.on_subscription = self._subscription
        loop.at_turn_end(self._turn_end)

    def start(self, pid: int) -> None:
        """Say hello and hold on to the supervisor."""
        self._bus.send(Hello("worker", self._name, pid, self._house.boot))
        self._loop.on_death(self._house.supervisor, self._supervisor_died)

    @property
    def supervisor_lives(self) -> bool:
        """Whether there is somebody to tell."""
        return not self._orphaned

    # What the supervisor says.

    def _message(self, message: Any, payload: bytes) -> None:
        match message:
            case Run():
                self._run(message, payload)
            case Cancel():
                self._cancel(RequestKey(message.gateway, message.number, message.attempt), message.reason)
            case Check():
                self._check(message.spec)
            case Load():
                self._load(message.spec)
            case Leave():
                self.leave(message.grace, message.reason)
            case Ping():
                self._bus.send(Pong(message.number))
            case _:
                pass

    def _check(self, spec: ModelSpec) -> None:
        try:
            report, trained = check(spec, self._made(spec))
        except LemonbusError as problem:
            self._bus.send(LoadFailed(problem.failure))
            return
        self._trained = (spec, trained)
        self._bus.send(report)

    def _made(self, spec: ModelSpec) -> Backend:
        backend = backends.backend_class(spec.recipe)(spec, self._settings)
        if self._trained is not None and self._trained[0] == spec:
            backend.trained_context = self._trained[1]
        return backend

    def _load(self, spec: ModelSpec) -> None:
        if self._state not in (State.SPARE, State.DOWN):
            self._log.warning("a load that does not fit was ignored", model=spec.name, state=self._state.name)
            return
        self._spec = spec
        self._log = logs.get(worker=self._name, model=spec.name)
        self._failure = None
        self._watchdog = Watchdog(self._settings.silence)
        self._load_began = time.monotonic()
        try:
            self._backend = self._made(spec)
            if self._trained is None or self._trained[0] != spec:
                _, self._backend.trained_context = check(spec, self._backend)
                self._trained = (spec, self._backend.trained_context)
            self._backend.prepare()
            self._engine = Engine(self._loop, self._backend, self._log, self._only_label, self._engine_died)
        except LemonbusError as problem:
            self._bus.send(LoadFailed(problem.failure))
            return
        except OSError as problem:
            message = f"{spec.name} cannot be loaded: its engine cannot be started"
            self._bus.send(LoadFailed(Failure(Code.LOAD_FAILED, message, model=spec.name, detail=str(problem))))
            return
        self._state = State.LOADING
        self._log.info("engine started", engine_pid=self._engine.pid, command=" ".join(self._engine.command))
        self._client = Client(self._loop, self._engine.port, self._backend.slots + 1)
        self._awakening = Awakening(self._loop, self._client, self._backend, self._ready, self._load_failed)
        self._load_timer = self._loop.call_later(
            self._settings.load_timeout,
            lambda: self._load_failed(f"it was not ready within {self._settings.load_timeout:g} s"),
        )

    def _ready(self, facts: EngineFacts) -> None:
        engine, spec = self._engine, self._spec
        if engine is None or spec is None or self._state is not State.LOADING:
            return
        self._stop_loading()
        self._state = State.READY
        seconds = time.monotonic() - self._load_began
        self._log.info("engine ready", engine_pid=engine.pid, seconds=round(seconds, 3), slots=facts.slots)
        self._bus.send(
            Ready(
                slots=facts.slots,
                context=facts.context,
                engine_pid=engine.pid,
                backend_url=engine.url,
                seconds=seconds,
                version=facts.version,
                rss=engine.resident(),
            )
        )

    def _stop_loading(self) -> None:
        if self._load_timer is not None:
            self._load_timer.cancel()
            self._load_timer = None
        if self._awakening is not None:
            self._awakening.cancel()

    def _load_failed(self, reason: str) -> None:
        self._stop_loading()
        if self._engine and self._spec and self._backend:
            message = f"{self._spec.name} cannot be loaded: {self._backend.program} did not become ready"
            self._failure = Failure(Code.LOAD_FAILED, message, model=self._spec.name, detail=reason)
            self._engine.stop()

    # Requests.

    def _run(self, run: Run, body: bytes) -> None:
        key = RequestKey(run.gateway, run.number, run.attempt)
        if self._backend is None or key in self._attempts:
            return
        attempt = Attempt(run, body, self._backend.program, self._backend.alias, self, self._loop.now)
        self._attempts[key] = attempt
        if self._audience.hears(run.gateway):
            self._start(attempt)
            return
        if self._state is not State.READY:
            self._audience.wait(key, math.inf)
            return
        self._audience.wait(key, self._loop.now())
        self._loop.call_later(self._settings.subscribe_timeout, self._give_back)

    def _give_back(self) -> None:
        # A hair less patience: the timer that is due must find its own request.
        for key in self._audience.overdue(self._loop.now(), self._settings.subscribe_timeout - 0.001):
            del self._attempts[key]
            self._bus.send(Idle(*key, code=Code.RETURNED))
        self._look_at_leaving()

    def _start(self, attempt: Attempt) -> None:
        self._desk.opened(attempt.key)
        if self._backend is None or self._client is None or self._state is not State.READY:
            # It crossed with the engine's death, or with our leaving.
            failure = Failure(Code.RETURNED, "the worker takes no requests now", model=attempt.run.model)
            self.failed(attempt, failure, stopped=True)
            return
        try:
            body = attempt.body
            if attempt.run.spool:
                body = (endpoints.spool(self._house.runtime) / Path(attempt.run.spool).name).read_bytes()
            request = self._backend.request(attempt.run.endpoint, attempt.run.query, body, attempt.run.stream)
        except LemonbusError as problem:
            self.failed(attempt, problem.failure, stopped=True)
            return
        except OSError as problem:
            failure = Failure(Code.INTERNAL, "the request's body is not there any more", detail=str(problem))
            self.failed(attempt, failure, stopped=True)
            return
        attempt.started(request)
        attempt.exchange = self._client.send(request, attempt)
        self._watch()

    def _subscription(self, joined: bool, topic: bytes) -> None:
        if joined:
            for key in self._audience.joined(topic):
                self._start(self._attempts[key])
            return
        self._audience.left(topic)
        gateway = topic[:-1].decode("utf-8", "replace")
        for key in [key for key in self._attempts if key.gateway == gateway]:
            self._cancel(key, Code.CANCELLED)
        self._desk.gateway_left(gateway)

    def _cancel(self, key: RequestKey, code: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is Phase.STOPPING:
            return
        self._desk.dropped(key)
        if attempt.phase is Phase.WAITING:
            self._audience.forget(key)
            self._idle(attempt, code)
        else:
            self._stop(attempt, code)

    def _stop(self, attempt: Attempt, code: str) -> None:
        """Let the engine stop; its grant is free when it has."""
        attempt.phase, attempt.code = Phase.STOPPING, code
        backend, exchange = self._backend, attempt.exchange
        if backend is None or exchange is None:
            self._idle(attempt, code)
        elif attempt.request.streamed and backend.descriptor.idle_check.get(attempt.run.endpoint) == IdleCheck.SLOTS:
            if attempt.answering or exchange.connection is None:
                self._hang_up(attempt)
            else:
                self._loop.call_later(HANG_UP_AFTER_S, lambda: self._hang_up(attempt))
        elif exchange.connection is None:
            self._idle(attempt, code)

    def _hang_up(self, attempt: Attempt) -> None:
        exchange, attempt.exchange = attempt.exchange, None
        if exchange is not None:
            exchange.cancel()
        if self._poll_timer is None and self._attempts.get(attempt.key) is attempt:
            self._poll_timer = self._loop.call_later(IDLE_POLL_S, self._poll)

    def _poll(self) -> None:
        if self._client is None or self._backend is None or not self._client.open:
            self._poll_timer = None
            return
        self._client.send(self._backend.busy(), Whole(self._polled))

    def _polled(self, status: int, body: bytes) -> None:
        self._poll_timer = None
        stopping = [
            attempt
            for attempt in self._attempts.values()
            if attempt.phase is Phase.STOPPING and attempt.exchange is None
        ]
        if not stopping or self._backend is None:
            return
        allowed = sum(
            attempt.request.weight
            for attempt in self._attempts.values()
            if attempt.phase is Phase.RUNNING or attempt.exchange is not None
        )
        try:
            idle = status == 200 and self._backend.processing(body) <= allowed
        except ValueError:
            idle = False
        if not idle:
            self._poll_timer = self._loop.call_later(IDLE_POLL_S, self._poll)
            return
        for attempt in stopping:
            self._idle(attempt, attempt.code)

    def _idle(self, attempt: Attempt, code: str) -> None:
        del self._attempts[attempt.key]
        outcome = attempt.outcome() if not code else None
        self._bus.send(Idle(*attempt.key, code=code, outcome=outcome))
        self._look_at_leaving()

    # What attempts say.

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """See :class:`~workers.attempt.Owner`."""
        self._watchdog.progress(self._loop.now())
        if attempt.phase is Phase.STOPPING:
            if attempt.exchange is not None and attempt.request.streamed:
                self._hang_up(attempt)
        elif data:
            self._desk.delta(attempt.key, data, tokens)
        elif attempt.silent_for(ALIVE_EVERY_S):
            self._desk.alive(attempt.key)

    def completed(self, attempt: Attempt, answer: bytes) -> None:
        """See :class:`~workers.attempt.Owner`."""
        outcome = attempt.outcome()
        if answer:
            self._desk.delta(attempt.key, answer, attempt.tokens)
        self._desk.done(attempt.key, outcome)
        del self._attempts[attempt.key]
        self._bus.send(Idle(*attempt.key, outcome=outcome))
        self._look_at_leaving()

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """See :class:`~workers.attempt.Owner`."""
        self._log.warning("request failed", request_id=attempt.run.label, code=failure.code, reason=failure.message)
        self._desk.failed(attempt.key, failure)
        if stopped:
            self._idle(attempt, failure.code)
        else:
            self._stop(attempt, failure.code)

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """See :class:`~workers.attempt.Owner`."""

        def judge() -> None:
            if self._attempts.get(attempt.key) is attempt and attempt.phase is Phase.RUNNING:
                self.failed(attempt, failure, stopped=False)

        # Most often the engine is dying: its death, a moment later, says more than a broken connection.
        self._loop.call_later(DEATH_SHOWS_S, judge)

    def discarded(self, attempt: Attempt) -> None:
        """See :class:`~workers.attempt.Owner`."""
        if attempt.request.streamed:
            self._hang_up(attempt)
        elif self._client is not None and self._client.open:
            self._idle(attempt, attempt.code)

    def _only_label(self) -> str:
        """Return the label of the running request, if there is exactly one."""
        if len(self._attempts) != 1:
            return ""
        return next(iter(self._attempts.values())).run.label

    # The engine's death.

    def _engine_died(self, death: Death) -> None:
        spec, backend, client = self._spec, self._backend, self._client
        if spec is None or backend is None or client is None:
            raise AssertionError
        self._stop_loading()
        client.drain()
        client.close()
        self._engine = self._client = None
        if self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None
        said = f"{backend.program} {death.how}"
        if self._state is State.LEAVING:
            self._fail_all(Failure(Code.UNLOADED, f"{spec.name} was unloaded", model=spec.name))
            self._flush()
            self._loop.stop()
            return
        was_ready = self._state is State.READY
        self._state = State.DOWN
        self._log.error("engine died", how=said, last=death.last)
        if not was_ready:
            failure = self._failure or Failure(
                Code.LOAD_FAILED, f"{spec.name} cannot be loaded: {said}", model=spec.name
            )
            detail = "\n".join(part for part in (failure.detail, said, death.last) if part)
            self._state = State.SPARE
            self._bus.send(LoadFailed(_with(failure, detail=detail), started=True))
            return
        failure = self._failure or Failure(Code.BACKEND_DIED, said, model=spec.name)
        failure = _with(failure, detail=death.last)
        self._fail_all(failure)
        self._flush()
        self._bus.send(EngineDied(failure))

    def _fail_all(self, failure: Failure) -> None:
        for attempt in list(self._attempts.values()):
            del self._attempts[attempt.key]
            if attempt.phase is Phase.WAITING:
                self._audience.forget(attempt.key)
                self._bus.send(Idle(*attempt.key, code=Code.RETURNED))
            elif attempt.phase is Phase.RUNNING:
                self._desk.failed(attempt.key, _with(failure, tokens_sent=attempt.tokens_sent))

    def _watch(self) -> None:
        if self._watch_timer is None:
            self._look()

    def _look(self) -> None:
        self._watch_timer = None
        engine, backend = self._engine, self._backend
        if engine is None or backend is None:
            return
        busy = any(attempt.phase is not Phase.WAITING for attempt in self._attempts.values())
        cpu = engine.cpu_seconds() if busy and backend.descriptor.silence_by_cpu else None
        verdict = self._watchdog.look(self._loop.now(), busy, cpu)
        if verdict is Verdict.ABORT:
            message = f"{backend.program} made no progress for {self._settings.silence:g} s and was ended"
            self._failure = Failure(Code.HUNG, message, model=self._spec.name if self._spec else "")
            self._log.error("engine hangs", engine_pid=engine.pid, silence=self._settings.silence)
            engine.signal(signal.SIGABRT)
        elif verdict is Verdict.KILL:
            engine.signal(signal.SIGKILL)
        if busy or self._watchdog.barked:
            self._watch_timer = self._loop.call_later(self._watchdog.period(), self._look)

    # The end.

    def leave(self, grace: float, reason: str) -> None:
        """Finish what runs within ``grace`` seconds, then end."""
        if self._state is State.LEAVING:
            self._set_grace(grace, Code.UNLOADED, reason)
            return
        self._state = State.LEAVING
        self._stop_loading()
        self._set_grace(grace, Code.UNLOADED, reason)
        self._look_at_leaving()

    def _set_grace(self, grace: float, code: Code, reason: str) -> None:
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._grace_timer = self._loop.call_later(grace, lambda: self._grace_over(code, reason))

    def _grace_over(self, code: Code, reason: str) -> None:
        name = self._spec.name if self._spec else ""
        self._fail_all(Failure(code, f"{name} was unloaded" + (f": {reason}" if reason else ""), model=name))
        self._flush()
        self._look_at_leaving()

    def _look_at_leaving(self) -> None:
        if self._state is not State.LEAVING or self._attempts:
            return
        if self._engine is not None:
            self._engine.stop()
        else:
            self._loop.stop()

    def _supervisor_died(self) -> None:
        self._orphaned = True
        self._log.warning("supervisor died", running=len(self._attempts))
        self._state = State.LEAVING
        self._stop_loading()
        self._set_grace(self._settings.grace, Code.SUPERVISOR_LOST, "its supervisor is gone")
        self._look_at_leaving()

    # What leaves.

    def _turn_end(self) -> None:
        while self._desk.overflowed:
            key = self._desk.overflowed.pop()
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.phase is Phase.RUNNING:
                self._stop(attempt, Code.CLIENT_TOO_SLOW)
        if self._flush_timer is None:
            self._flush()

    def _flush(self) -> None:
        if not self._desk.flush() and self._flush_timer is None:
            self._flush_timer = self._loop.call_later(RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        self._flush_timer = None
        self._flush()


def _with(failure: Failure, detail: str = "", tokens_sent: int = 0) -> Failure:
    return Failure(
        failure.code,
        failure.message,
        model=failure.model,
        detail=detail or failure.detail,
        tokens_sent=tokens_sent,
    )
