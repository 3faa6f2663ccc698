"""One attempt at one request, from the grant to its end: sends it to the engine, and reports to its owner.

Invariants:

* The phase only changes along the table below. An ended attempt reports nothing.
* While it is RUNNING, exactly one of ``completed``, ``failed``, ``broken`` or ``crashed`` is reported. Once it is
  STOPPING, only ``advanced`` and ``discarded`` are.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final, Protocol

from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.work import Run
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from workers.backends.base import Backend
from workers.backends.engine_request import EngineRequest
from workers.backends.requests.request_rules import apply_request_rules
from workers.engine.connections.exchange import EngineExchange
from workers.requests.engine_answer import AnswerFacts, Clock, EngineAnswer

END_BATCH_DELAY_S: Final = 0.002
"""How long the report of an end may wait, to be sent with others and after the answer: it wakes the supervisor."""


MAX_SERVERS_PASSED: Final = 8
"""Lemonbus servers that may pass a request on, one to the next."""


class AttemptPhase(enum.Enum):
    """The progress of an attempt."""

    WAITING = enum.auto()
    """Its gateway has not subscribed yet; the engine does not know the request."""
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    """Its result is no longer wanted, but the engine may still be working on it."""
    ENDED = enum.auto()

    def changed_to(self, phase: AttemptPhase) -> AttemptPhase:
        """Return the next phase; raises ValueError for a change that an attempt cannot make."""
        if phase not in NEXT_PHASES[self]:
            raise ValueError(f"an attempt cannot go from {self.name} to {phase.name}")
        return phase


NEXT_PHASES: Final[dict[AttemptPhase, frozenset[AttemptPhase]]] = {
    AttemptPhase.WAITING: frozenset({AttemptPhase.RUNNING, AttemptPhase.ENDED}),
    AttemptPhase.RUNNING: frozenset({AttemptPhase.STOPPING, AttemptPhase.ENDED}),
    AttemptPhase.STOPPING: frozenset({AttemptPhase.ENDED}),
    AttemptPhase.ENDED: frozenset(),
}


class AttemptOwner(Protocol):
    """Is told what happens to an attempt."""

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """The engine sent something; ``data`` (may be empty) is for the client."""

    def completed(self, attempt: Attempt, body: bytes) -> None:
        """The generation really ended. ``body`` is the whole response body of a request that is not streamed."""

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """It ended otherwise. ``stopped``: the engine is known to have stopped working on it."""

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """The connection broke, as ``failure`` says. The engine's death may turn out to be the reason."""

    def crashed(self, attempt: Attempt, error: BaseException) -> None:
        """Our own code raised while it handled the response."""

    def discarded(self, attempt: Attempt) -> None:
        """The response of a stopping attempt has ended, in whatever way."""


class Attempt:
    """One attempt. It is the :class:`~workers.engine.connections.exchange.ResponseHandler` of its exchange."""

    def __init__(self, run: Run, body: bytes, backend: AnswerFacts, owner: AttemptOwner, clock: Clock) -> None:
        """Wait; ``backend`` is the engine's."""
        self.run = run
        self.key = RequestKey(run.gateway, run.number, run.attempt)
        self.body = body
        self.phase = AttemptPhase.WAITING
        self.stop_code = ""
        """Why it is stopping."""
        self.abandoned = False
        """Whether the supervisor was told that the engine still works on it although no client waits."""
        self.exchange: EngineExchange | None = None
        self.held = False
        """Whether its engine must wait, because its client does not keep up."""
        self.answer = EngineAnswer(run, backend, clock)
        self._backend, self._owner = backend, owner
        self._reported_at = 0.0
        self._passed_on = False
        """Whether the client has got a part of the answer."""
        self._clock = clock
        self.arrived_at = clock()
        """When its `Run` came."""

    def enter(self, phase: AttemptPhase) -> None:
        """Change the phase; raises ValueError for a change that the table does not have."""
        self.phase = self.phase.changed_to(phase)

    def start(self, request: EngineRequest) -> None:
        """Begin to run: ``request`` goes to the engine."""
        self.enter(AttemptPhase.RUNNING)
        self.body = b""
        self._reported_at = self._clock()
        self.answer.expect(request)

    @property
    def request(self) -> EngineRequest:
        """The request that the engine has got; an empty one before."""
        return self.answer.request

    @property
    def tokens(self) -> int:
        """Tokens that the engine has produced."""
        return self.answer.tokens

    def keepalive_due(self, interval: float) -> bool:
        """Return whether nothing was reported for ``interval`` seconds. If so, the next interval begins now."""
        now = self._clock()
        if now - self._reported_at < interval:
            return False
        self._reported_at = now
        return True

    def hold(self, on: bool) -> None:
        """Read no more of the engine's answer, or go on. The engine stops when its connection is full."""
        self.held = on and self.phase is AttemptPhase.RUNNING
        if self.exchange is not None and self.held == on:
            self.exchange.hold(on)

    # What the connection reports; see :class:`~workers.engine.connections.exchange.ResponseHandler`.

    def began(self, status: int) -> None:
        """Take the status."""
        self.answer.began(status, self.exchange.headers if self.exchange is not None else {})
        self._owner.advanced(self, b"", 0)

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""
        if self.phase is not AttemptPhase.RUNNING:
            return
        try:
            filtered = self.answer.feed(piece)
        except LemonbusError as problem:
            self._owner.failed(self, problem.failure, stopped=False)
            return
        if filtered.tokens:
            first = self.answer.count(filtered.tokens)
            if first and self.exchange is not None and not self.request.patient:
                self.exchange.allow_batched_reads()
        elif not filtered.data and not filtered.alive:
            return  # a part of an event is not progress: the event may never end
        self._passed_on = self._passed_on or bool(filtered.data)
        self._owner.advanced(self, filtered.data, filtered.tokens)

    def trailer(self, name: bytes, value: bytes) -> None:
        """Take the counts of an answer that has no place for them."""
        self.answer.note_trailer(name, value)

    def restart(self) -> bool:
        """Begin again, unless the client has got a part of the answer."""
        if self._passed_on or self.phase is not AttemptPhase.RUNNING:
            return False
        former, self.answer = self.answer, EngineAnswer(self.run, self._backend, self._clock)
        if former.request.restart is not None:
            former.request.restart()
        self.answer.expect(former.request, former.began_at)
        return True

    def ended(self, until_close: bool = False) -> None:
        """Judge whether the response is complete."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
            return
        try:
            body = self.answer.finish(until_close)
        except LemonbusError as problem:
            self._owner.failed(self, problem.failure, stopped=True)
            return
        self._owner.completed(self, body)

    def broke(self, reason: str) -> None:
        """Report a connection that ended too early."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        else:
            message = f"the connection to {self._backend.program} broke"
            self._owner.broken(self, self.answer.failure(message, reason, Code.CONNECTION_LOST))

    def malformed(self, reason: str) -> None:
        """Report an engine that does not speak HTTP."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        else:
            failure = self.answer.failure(f"{self._backend.program} sent something that is not HTTP", reason)
            self._owner.failed(self, failure, stopped=False)

    def crashed(self, error: BaseException) -> None:
        """Report a programming error of ours."""
        self._owner.crashed(self, error)


def engine_request(run: Run, body: bytes, backend: Backend, context: ProcessContext) -> EngineRequest:
    """Return the engine's request for a `Run`; raises the failure of a request that cannot be sent.

    ``context``: has the directory with the spool, for a request whose body is in a file, and the id of this server's run.
    """
    via = _passed_on(run, context.boot) if backend.servers else ""
    if run.spool:
        try:
            body = (endpoints.spool(context.runtime) / Path(run.spool).name).read_bytes()
        except OSError as problem:
            message = "the file with the request's body is missing"
            raise Failure(Code.INTERNAL, message, detail=str(problem)).raised() from problem
    body = apply_request_rules(backend.rules, run.endpoint, body)
    request = backend.request(run.endpoint, run.query, body, run.stream)
    return request._replace(via=via) if via else request


def _passed_on(run: Run, boot: str) -> str:
    """Return the header ``Via`` of a request to another server; raises a failure if it would go round in a circle."""
    own = f"lemonbus-{boot}"
    if own in run.via or len(run.via) >= MAX_SERVERS_PASSED:
        what = (
            f"the request for {run.model} goes round in a loop of servers: a remote server passes it back to this one"
        )
        raise Failure(Code.LOOP_DETECTED, what, model=run.model).raised()
    return ", ".join(f"1.1 {each}" for each in (*run.via, own))


def end_delay(*, running: int, slots: int) -> float:
    """Return how many seconds the report of an attempt's end may wait; 0: it is sent before the answer.

    It may only wait if no request can be waiting for the slot. ``running``: attempts that have not ended, except this one.
    """
    mostly_free = running + 1 <= slots / 2
    return END_BATCH_DELAY_S if mostly_free else 0.0
