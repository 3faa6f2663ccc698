"""The gateway's picture of the house: what runs for whom, and whether anybody may come in.

Resources get it in their constructor.  What they use: :attr:`House.settings`, :meth:`House.call`,
:meth:`House.follow`, and for inference ``answers.whole`` and ``answers.stream``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec
from gevent.event import Event as Happened

from gateway.calls import Build, Follower
from gateway.exchange import Exchange, Question
from gateway.roster import Events, Roster
from gateway.spool import Spool
from gateway.state import REFUSALS, State
from gateway.straight import Straight, Workers
from protocol import admin, logs, staff, wire, work
from protocol.events import Event, Kind
from protocol.failures import Code, Failure, LemonbusError
from protocol.settings import Settings

__all__ = ["REFUSALS", "House", "State"]

R = TypeVar("R")
_LENT: Final = int(Kind.LENT)
"""Events of this kind and above are no part of any answer."""


class Line(Events, Workers, Protocol):
    """The sockets, as far as the house uses them (``bus.py``)."""

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send to the supervisor; raises ``LemonbusError`` if its outbox is full."""


class House:
    """What this gateway knows. All state changes happen in callbacks of gevent's hub."""

    def __init__(self, gateway: str, settings: Settings, spool: Spool) -> None:
        """Start with no supervisor."""
        self.id = gateway
        self.settings = settings
        self.spool = spool
        self.state = State.STARTING
        self.welcomed = Happened()
        self.inbox_bytes = settings.inbox_bytes
        self._numbers = itertools.count(1)
        self._exchanges: dict[int, Exchange] = {}
        self._calls: dict[int, Follower] = {}
        self._touched: dict[int, Exchange] = {}
        self._handlers: dict[type, Callable[[Any, bytes], None]] = {
            work.Granted: self._granted,
            work.Refused: self._refused,
            admin.Answer: self._report,
            admin.Progress: self._report,
            admin.LogBatch: self._report,
            staff.WorkerUp: self._worker_up,
            staff.WorkerGone: self._worker_gone,
            staff.Welcome: self._welcome,
            staff.Ping: self._ping,
            staff.Draining: self._draining,
            staff.Leave: self._draining,
        }
        self.on_leave: Callable[[float], None] | None = None
        """Called once when this process has to end, with the seconds that are left."""

    def open(self, line: Line) -> None:
        """Take the sockets into use."""
        self.line = line
        self._roster = Roster(line, self._settle)
        self._straight = Straight(self.id, line)

    # For resources

    def admit(self) -> None:
        """Raise the failure that says why nobody may come in, unless somebody may."""
        if self.state is not State.OPEN:
            raise REFUSALS[self.state].raised()

    def call(self, env: dict[str, Any], build: Build, cls: type[R]) -> R:
        """Call the supervisor and wait for its report: ``house.call(req.env, lambda n: GetModel(n, x), ModelEntry)``.

        Raises ``LemonbusError`` if it refuses, and when the client hangs up meanwhile (the supervisor is told).
        """
        with self.follow(env, build) as follower:
            for message in follower:
                if isinstance(message, admin.Answer):
                    report: R = wire.unpack(follower.report, cls)
                    return report
        raise Failure(Code.INTERNAL, "the supervisor did not answer").raised()

    def follow(self, env: dict[str, Any], build: Build, *, endless: bool = False) -> Follower:
        """Call the supervisor and get everything that comes under the call's number; see :class:`Follower`."""
        self.admit()
        number = next(self._numbers)
        follower = self._calls[number] = Follower(self, number, env, endless)
        try:
            self.line.send(build(number))
        except BaseException:
            follower.close()
            raise
        return follower

    # For answers.py

    def ask_for(self, question: Question) -> Exchange:
        """Send a question; raises ``LemonbusError`` if nobody may come in, or its body has no room."""
        self.admit()
        exchange = Exchange(self, question, next(self._numbers))
        if logs.tracing():
            asked = {"request_id": question.label, "endpoint": question.endpoint, "model": question.model}
            logs.get().trace("question", **asked, body=question.body.decode("utf-8", "replace"))
        if len(question.body) > self.settings.spool_over:
            exchange.spool = self.spool.keep(question.body)
        self._exchanges[exchange.number] = exchange
        try:
            exchange.begin()
        except BaseException:
            self.release(exchange)
            raise
        return exchange

    def release(self, exchange: Exchange) -> None:
        """Forget the exchange and its spool file. Idempotent."""
        self._exchanges.pop(exchange.number, None)
        if exchange.spool:
            name, exchange.spool = exchange.spool, ""
            self.spool.drop(name)

    # For exchanges and calls

    def ask(self, exchange: Exchange, suspect: bool) -> None:
        """Send the present attempt."""
        question = exchange.question
        if exchange.attempt == 1 and self._straight.send(exchange):
            return
        new, exchange.admitted = not exchange.admitted, True
        self.line.send(
            work.Ask(
                number=exchange.number,
                attempt=exchange.attempt,
                model=question.model,
                endpoint=question.endpoint,
                label=question.label,
                weight=question.weight,
                size=len(question.body),
                stream=question.stream,
                suspect=suspect,
                new=new and exchange.attempt > 1,
                spool=exchange.spool,
                query=question.query,
            ),
            b"" if exchange.spool else question.body,
        )

    def cancel(self, exchange: Exchange, reason: str) -> None:
        """Tell whoever runs it that nobody wants the present attempt."""
        message = work.Cancel(self.id, exchange.number, exchange.attempt, reason)
        if not self._straight.cancel(exchange, message):
            self.send(message)

    def forget(self, exchange: Exchange) -> None:
        """Deliver nothing to it any more."""
        self._exchanges.pop(exchange.number, None)

    def may_retry(self) -> bool:
        """Return whether there is a supervisor to ask."""
        return self.state is not State.LOST

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send to the supervisor, if there is one that reads; never raises."""
        if self.state is State.LOST:
            return
        try:
            self.line.send(message, payload)
        except LemonbusError as problem:
            logs.get().error("could not be sent", message=type(message).__name__, problem=problem.failure.message)

    def end_call(self, number: int) -> None:
        """Deliver nothing to this call any more."""
        self._calls.pop(number, None)

    # From the bus, in the hub

    def on_message(self, message: Any, payload: bytes) -> None:
        """Take a control message."""
        handler = self._handlers.get(type(message))
        if handler is None:
            logs.get().warning("unexpected message", message=type(message).__name__)
        else:
            handler(message, payload)

    def _granted(self, message: work.Granted, _: bytes) -> None:
        for grant in message.grants:
            exchange = self._exchanges.get(grant.number)
            if exchange is not None:
                exchange.granted(grant.worker, grant.model, grant.attempt)

    def _refused(self, message: work.Refused, _: bytes) -> None:
        if message.attempt:
            exchange = self._exchanges.get(message.number)
            if exchange is not None:
                exchange.refused(message.failure, message.attempt)
            return
        follower = self._calls.get(message.number)
        if follower is not None:
            follower.fail(message.failure)

    def _report(self, message: admin.Answer | admin.Progress | admin.LogBatch, payload: bytes) -> None:
        follower = self._calls.get(message.number)
        if follower is not None:
            follower.deliver(message, payload)

    def _welcome(self, _message: staff.Welcome, _: bytes) -> None:
        if self.state is State.STARTING:
            self.state = State.OPEN
            self.welcomed.set()

    def _ping(self, message: staff.Ping, _: bytes) -> None:
        self.line.send(staff.Pong(message.number))

    def _draining(self, message: staff.Draining | staff.Leave, _: bytes) -> None:
        self._leave(State.DRAINING, message.grace)

    def _worker_up(self, message: staff.WorkerUp, _: bytes) -> None:
        self._roster.up(message.worker, message.endpoint)

    def _worker_gone(self, message: staff.WorkerGone, _: bytes) -> None:
        self._straight.gone(message.worker)
        self._roster.gone(message)

    def on_events(self, batch: list[Event], worker: str) -> None:
        """Take one message of events; :meth:`wake` tells those concerned when all that is here was read."""
        for event in batch:
            exchange = self._exchanges.get(event.number)
            if event.kind >= _LENT:
                self._straight.take(event, worker, exchange)
            elif exchange is not None:
                exchange.take_event(event, worker)
                self._touched[event.number] = exchange

    def wake(self) -> None:
        """Ring for everybody who got events."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for exchange in touched.values():
                exchange.nudge()

    def on_disconnected(self, endpoint: str) -> None:
        """Take note that a worker's connection ended; everything from it was read."""
        self._roster.disconnected(endpoint)

    def _settle(self, worker: str, failure: Failure) -> None:
        self._straight.gone(worker)
        for exchange in list(self._exchanges.values()):
            if exchange.worker == worker:
                exchange.fail(failure)

    # The end

    def _leave(self, state: State, grace: float) -> None:
        if self.state in (State.DRAINING, State.LOST):
            return
        self.state = state
        for follower in list(self._calls.values()):
            if follower.endless:
                follower.fail(REFUSALS[state])
        if self.on_leave is not None:
            self.on_leave(grace)

    def lose_supervisor(self) -> None:
        """End what was not granted; what runs may go on for the grace."""
        if self.state is State.LOST:
            return
        self.state = State.LOST
        self._roster.orphaned = True
        failure = REFUSALS[State.LOST]
        for exchange in list(self._exchanges.values()):
            if not exchange.worker:
                exchange.fail(failure)
        for follower in list(self._calls.values()):
            follower.fail(failure)
        if self.on_leave is not None:
            self.on_leave(self.settings.grace)

    def end_everything(self) -> None:
        """Tell everybody who still waits: the grace is over."""
        code = Code.SUPERVISOR_LOST if self.state is State.LOST else Code.DRAINING
        failure = Failure(code, "the server stopped", retry_after=5)
        for exchange in list(self._exchanges.values()):
            exchange.fail(failure)
        for follower in list(self._calls.values()):
            follower.fail(failure)
