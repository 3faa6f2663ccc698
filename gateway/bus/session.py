"""The gateway's session with the supervisor: its running requests and calls, and whether new ones are admitted.

Resources get it in their constructor.  They use :attr:`SupervisorSession.settings`, :meth:`SupervisorSession.call` and
:meth:`SupervisorSession.start_call`; for inference, :mod:`gateway.requests.inference`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec
from gevent.event import Event as GreenletEvent

from gateway.bus.calls import BuildMessage, SupervisorCall
from gateway.bus.worker_subscriptions import EventSocket, WorkerSubscriptions
from gateway.requests.admission import ADMISSION_FAILURES, AdmissionState
from gateway.requests.exchange import InferenceRequest, RequestExchange
from gateway.requests.leased_dispatch import LeasedDispatcher, WorkerSockets
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages import admin, peers, work
from protocol.messages.events import Event, EventKind
from protocol.runtime import logs
from protocol.wire import envelope

__all__ = ["ADMISSION_FAILURES", "AdmissionState", "SupervisorSession"]

R = TypeVar("R")
_FIRST_LEASE_KIND: Final = int(EventKind.LEASE_ISSUED)
"""Events of this kind and above are about leases, and no part of an answer."""


class SessionSockets(EventSocket, WorkerSockets, Protocol):
    """The sockets, as far as the session uses them (``sockets.py``)."""

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send to the supervisor; raises ``LemonbusError`` if its outbox is full."""


class SupervisorSession:
    """The state of this gateway. It changes in callbacks of gevent's hub only."""

    def __init__(self, gateway: str, settings: Settings, spool: Spool) -> None:
        """Start without a supervisor."""
        self.id = gateway
        self.settings = settings
        self.spool = spool
        self.state = AdmissionState.STARTING
        self.welcomed = GreenletEvent()
        self.inbox_bytes = settings.inbox_bytes
        self._numbers = itertools.count(1)
        self._exchanges: dict[int, RequestExchange] = {}
        self._calls: dict[int, SupervisorCall] = {}
        self._touched: dict[int, RequestExchange] = {}
        self._handlers: dict[type, Callable[[Any, bytes], None]] = {
            work.Granted: self._granted,
            work.Refused: self._refused,
            admin.CallResult: self._deliver_to_call,
            admin.Progress: self._deliver_to_call,
            admin.LogBatch: self._deliver_to_call,
            peers.WorkerUp: self._worker_up,
            peers.WorkerGone: self._worker_gone,
            peers.Welcome: self._welcome,
            peers.Ping: self._ping,
            peers.Draining: self._draining,
            peers.Shutdown: self._draining,
        }
        self.errors = 0
        """Exceptions in message handlers so far; each was logged, and its requests were answered 500."""
        self.on_shutdown: Callable[[float], None] | None = None
        """Called once when this process has to end, with the seconds that running requests have."""

    def open(self, sockets: SessionSockets) -> None:
        """Use ``sockets`` from now on."""
        self.sockets = sockets
        self._subscriptions = WorkerSubscriptions(sockets, self._fail_exchanges_of)
        self._leased_dispatcher = LeasedDispatcher(self.id, sockets)

    # For resources

    def admit(self) -> None:
        """Raise the failure that says why new requests are not admitted, unless they are."""
        if self.state is not AdmissionState.OPEN:
            raise ADMISSION_FAILURES[self.state].raised()

    def call(self, env: dict[str, Any], build: BuildMessage, cls: type[R]) -> R:
        """Call the supervisor and wait for its report: ``call(req.env, lambda n: GetModel(n, x), ModelEntry)``.

        Raises ``LemonbusError`` if it refuses, and when the client hangs up meanwhile (then the call is abandoned).
        """
        with self.start_call(env, build) as call:
            for message in call:
                if isinstance(message, admin.CallResult):
                    report: R = envelope.unpack_payload(call.report, cls)
                    return report
        raise Failure(Code.INTERNAL, "the supervisor did not answer").raised()

    def start_call(self, env: dict[str, Any], build: BuildMessage, *, endless: bool = False) -> SupervisorCall:
        """Call the supervisor and get everything that comes under the call's number; see :class:`SupervisorCall`."""
        self.admit()
        number = next(self._numbers)
        call = self._calls[number] = SupervisorCall(self, number, env, endless)
        try:
            self.sockets.send(build(number))
        except BaseException:
            call.close()
            raise
        return call

    # For inference.py

    def start_exchange(self, request: InferenceRequest) -> RequestExchange:
        """Send an inference request; raises ``LemonbusError`` if none is admitted, or if the spool has no space for its body."""
        self.admit()
        exchange = RequestExchange(self, request, next(self._numbers))
        if logs.trace_enabled():
            fields = {"request_id": request.label, "endpoint": request.endpoint, "model": request.model}
            logs.get_logger().trace("inference request", **fields, body=request.body.decode("utf-8", "replace"))
        self._exchanges[exchange.number] = exchange
        try:
            if len(request.body) > self.settings.spool_over:
                exchange.spool = self.spool.keep(request.body)
                self.admit()  # other greenlets ran meanwhile
            exchange.begin()
        except BaseException:
            self.release(exchange)
            raise
        return exchange

    def release(self, exchange: RequestExchange) -> None:
        """Forget the exchange, and remove its spool file. Idempotent."""
        self._exchanges.pop(exchange.number, None)
        if exchange.spool:
            name, exchange.spool = exchange.spool, ""
            self.spool.drop(name)

    # For exchanges and calls

    def submit(self, exchange: RequestExchange, suspect: bool) -> None:
        """Send the present attempt."""
        request = exchange.request
        if exchange.attempt == 1 and self._leased_dispatcher.send(exchange):
            return
        new, exchange.admitted = not exchange.admitted, True
        self.sockets.send(
            work.SubmitRequest(
                number=exchange.number,
                attempt=exchange.attempt,
                model=request.model,
                endpoint=request.endpoint,
                label=request.label,
                weight=request.weight,
                size=len(request.body),
                stream=request.stream,
                suspect=suspect,
                new=new and exchange.attempt > 1,
                spool=exchange.spool,
                query=request.query,
            ),
            b"" if exchange.spool else request.body,
        )

    def cancel(self, exchange: RequestExchange, reason: str) -> None:
        """Cancel the present attempt where it runs: at its worker, or through the supervisor."""
        message = work.Cancel(self.id, exchange.number, exchange.attempt, reason)
        if not self._leased_dispatcher.cancel(exchange, message):
            self.send(message)

    def forget(self, exchange: RequestExchange) -> None:
        """Deliver no more events to it."""
        self._exchanges.pop(exchange.number, None)

    def may_retry(self) -> bool:
        """Return whether there is a supervisor to send another attempt to."""
        return self.state is not AdmissionState.LOST

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send to the supervisor, if it is there; a message that it does not take is logged. Never raises."""
        if self.state is AdmissionState.LOST:
            return
        try:
            self.sockets.send(message, payload)
        except LemonbusError as problem:
            logs.get_logger().error("message not sent", message=type(message).__name__, problem=problem.failure.message)

    def end_call(self, number: int) -> None:
        """Deliver no more messages to this call."""
        self._calls.pop(number, None)

    # From the bus, in the hub

    def on_message(self, message: Any, payload: bytes) -> None:
        """Take a control message. Raises nothing: what goes wrong fails the requests that the message is about."""
        handler = self._handlers.get(type(message))
        if handler is None:
            logs.get_logger().warning("unexpected message", message=type(message).__name__)
            return
        try:
            handler(message, payload)
        except Exception as problem:  # noqa: BLE001 - the loop must go on
            grants = message.grants if isinstance(message, work.Granted) else [message]
            self._on_error(problem, [getattr(each, "number", 0) for each in grants])

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
        call = self._calls.get(message.number)
        if call is not None:
            call.fail(message.failure)

    def _deliver_to_call(self, message: admin.CallResult | admin.Progress | admin.LogBatch, payload: bytes) -> None:
        call = self._calls.get(message.number)
        if call is not None:
            call.deliver(message, payload)

    def _welcome(self, _message: peers.Welcome, _: bytes) -> None:
        if self.state is AdmissionState.STARTING:
            self.state = AdmissionState.OPEN
            self.welcomed.set()

    def _ping(self, message: peers.Ping, _: bytes) -> None:
        self.sockets.send(peers.Pong(message.number))

    def _draining(self, message: peers.Draining | peers.Shutdown, _: bytes) -> None:
        self._begin_shutdown(AdmissionState.DRAINING, message.grace)

    def _worker_up(self, message: peers.WorkerUp, _: bytes) -> None:
        self._subscriptions.up(message.worker, message.endpoint)

    def _worker_gone(self, message: peers.WorkerGone, _: bytes) -> None:
        self._leased_dispatcher.remove_worker(message.worker)
        self._subscriptions.gone(message)

    def on_events(self, batch: list[Event], worker: str) -> None:
        """Take a batch of events; :meth:`notify_exchanges` wakes their requests when all that is here was read.

        Raises nothing: what goes wrong fails the request that the event is about.
        """
        for event in batch:
            exchange = self._exchanges.get(event.number)
            try:
                if event.kind >= _FIRST_LEASE_KIND:
                    self._leased_dispatcher.take_event(event, worker, exchange)
                elif exchange is not None:
                    exchange.take_event(event, worker)
                    self._touched[event.number] = exchange
            except Exception as problem:  # noqa: BLE001 - the loop must go on
                self._on_error(problem, [event.number])

    def _on_error(self, problem: Exception, numbers: list[int]) -> None:
        """Log and count an exception in a message handler; the requests that it is about are answered 500."""
        self.errors += 1
        for number in numbers:
            waiting = self._exchanges.get(number) or self._calls.get(number)
            label = waiting.label if waiting is not None else ""
            fields = {"request_id": label} if label else {}
            logs.get_logger().error("internal error", **fields, errors=self.errors, exc_info=problem)
            if waiting is not None:
                waiting.fail(Failure(Code.INTERNAL, "an internal error; the log has it under this request id"))

    def notify_exchanges(self) -> None:
        """Wake the requests that got events."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for exchange in touched.values():
                exchange.wake_if_ready()

    def on_disconnected(self, endpoint: str) -> None:
        """Settle a worker whose connection ended, after everything from it was read."""
        self._subscriptions.disconnected(endpoint)

    def _fail_exchanges_of(self, worker: str, failure: Failure) -> None:
        self._leased_dispatcher.remove_worker(worker)
        for exchange in list(self._exchanges.values()):
            if exchange.worker == worker:
                exchange.fail(failure)

    # Shutdown

    def _begin_shutdown(self, state: AdmissionState, grace: float) -> None:
        if self.state in (AdmissionState.DRAINING, AdmissionState.LOST):
            return
        self.state = state
        for call in list(self._calls.values()):
            if call.endless:
                call.fail(ADMISSION_FAILURES[state])
        if self.on_shutdown is not None:
            self.on_shutdown(grace)

    def lose_supervisor(self) -> None:
        """Fail the requests that no worker has; those that run may go on for the grace."""
        if self.state is AdmissionState.LOST:
            return
        self.state = AdmissionState.LOST
        self._subscriptions.orphaned = True
        failure = ADMISSION_FAILURES[AdmissionState.LOST]
        for exchange in list(self._exchanges.values()):
            if not exchange.worker:
                exchange.fail(failure)
        for call in list(self._calls.values()):
            call.fail(failure)
        if self.on_shutdown is not None:
            self.on_shutdown(self.settings.grace)

    def fail_everything(self) -> None:
        """Fail all requests and calls that still run: the grace is over."""
        code = Code.SUPERVISOR_LOST if self.state is AdmissionState.LOST else Code.DRAINING
        failure = Failure(code, "the server stopped", retry_after=5)
        for exchange in list(self._exchanges.values()):
            exchange.fail(failure)
        for call in list(self._calls.values()):
            call.fail(failure)
