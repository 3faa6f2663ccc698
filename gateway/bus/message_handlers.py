"""Handles what arrives on the gateway's bus: the supervisor's messages, workers' events, ends of connections.

Invariants:

* No message raises into the bus. An exception fails the requests that the message is about, and the next message is
  handled.
* Each such exception is logged and counted. The answer to a ``Ping`` reports each exception of this process once, also
  those of request greenlets and of the event loop (:mod:`gateway.internal_errors`).
* A request is woken once after all arrived events were taken, not once for each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final

from gateway.bus.interfaces import ControlSocket, SessionControl
from gateway.bus.pending_requests import CUT_OFF_ELSEWHERE_S, CUT_OFF_TIMEOUT_S, PendingRequests
from gateway.bus.worker_subscriptions import WORKER_ENDED, WorkerSubscriptions
from gateway.http.request_counts import RequestCounts
from gateway.internal_errors import INTERNAL_ERRORS, INTERNAL_FAILURE
from gateway.requests.exchange import RequestExchange
from gateway.requests.received_ends import ReceivedEnds
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages import metrics, peers, recovery, work
from protocol.messages.caller import KeyUsage
from protocol.messages.calls import CallResult, Progress
from protocol.messages.events import Event
from protocol.messages.log_stream import LogBatch
from protocol.messages.readiness import ServerReadiness
from protocol.models.nodes import HEAD
from protocol.runtime import logs

_ABOUT_ONE_REQUEST: Final = (work.Refused, CallResult, Progress, LogBatch)
"""Messages with the number of a request or a call."""


class MessageHandlers:
    """Handles messages one after the other. Called only in gevent's hub."""

    def __init__(
        self,
        session: SessionControl,
        control: ControlSocket,
        pending: PendingRequests,
        request_counts: RequestCounts,
        received_ends: ReceivedEnds,
        *,
        elsewhere: bool = False,
    ) -> None:
        """Deliver to the requests and calls in ``pending``; report ``request_counts`` and ``received_ends``.

        ``elsewhere``: this gateway is not on the supervisor's node.
        """
        self._elsewhere = elsewhere
        self._session = session
        self._control = control
        self._pending = pending
        self._request_counts, self._received_ends = request_counts, received_ends
        self._subscriptions = WorkerSubscriptions(control, self._end_worker, self._cut_off)
        self._last_events: dict[str, float] = {}
        """Worker → when its last events came. Only on another node than the supervisor's."""
        self._to_wake: dict[int, RequestExchange] = {}
        """Requests that got events and have not been woken yet."""
        self._errors_reported = INTERNAL_ERRORS.count
        """Our own exceptions that the supervisor knows about, or that precede this session with it."""
        self._handlers: dict[type, Callable[[Any, bytes], None]] = {
            work.Granted: self._granted,
            KeyUsage: self._key_usage,
            work.QueueStatus: self._queue_status,
            work.Refused: self._refused,
            CallResult: self._deliver_to_call,
            Progress: self._deliver_to_call,
            LogBatch: self._deliver_to_call,
            peers.WorkerUp: self._worker_up,
            peers.WorkerGone: self._worker_gone,
            recovery.Recovered: self._recovered,
            ServerReadiness: self._server_changed,
            peers.Welcome: self._welcome,
            peers.Ping: self._ping,
            metrics.CollectMetrics: self._collect_metrics,
            peers.Draining: self._draining,
            peers.PauseAccepting: self._pause_accepting,
            peers.Rejoin: self._rejoin,
            peers.Shutdown: self._draining,
        }

    # What the bus calls

    def on_message(self, message: Any, payload: bytes) -> None:
        """Handle a message of the supervisor. Raises nothing."""
        handler = self._handlers.get(type(message))
        if handler is None:
            logs.get_logger().warning("unexpected message", message=type(message).__name__)
            return
        try:
            handler(message, payload)
        except Exception as problem:  # noqa: BLE001 - the loop must go on
            # A message with another kind of number, such as a ping, is not about a request.
            self._on_error(problem, message.number if isinstance(message, _ABOUT_ONE_REQUEST) else None)

    def on_events(self, batch: list[Event], worker: str) -> None:
        """Take a batch of events; :meth:`notify_exchanges` wakes their requests. Raises nothing."""
        exchanges = self._pending.exchanges
        for event in batch:
            exchange = exchanges.get(event.number)
            if exchange is None:
                continue
            try:
                exchange.take_event(event, worker)
                self._to_wake[event.number] = exchange
            except Exception as problem:  # noqa: BLE001 - the loop must go on
                self._on_error(problem, event.number)

    def on_events_elsewhere(self, batch: list[Event], worker: str) -> None:
        """Do the same on another node than the supervisor's, and note that the worker was heard."""
        self._last_events[worker] = time.monotonic()
        self.on_events(batch, worker)

    def node_of(self, worker: str) -> str:
        """Return the node of a worker, empty if it is the head and so is this process."""
        return self._subscriptions.node_of(worker) or (HEAD if self._elsewhere else "")

    def notify_exchanges(self) -> None:
        """Wake the requests that got events, once everything that has arrived was read."""
        if self._to_wake:
            exchanges, self._to_wake = self._to_wake, {}
            for exchange in exchanges.values():
                exchange.wake_if_ready()

    def on_disconnected(self, endpoint: str) -> None:
        """Settle a worker whose connection ended, after everything from it was read."""
        self._subscriptions.disconnected(endpoint)

    # What the session calls

    def supervisor_lost(self) -> None:
        """From now on, take the end of a connection for the end of its worker: no message will say it."""
        self._subscriptions.supervisor_lost()
        self.notify_exchanges()

    def report_requests(self) -> None:
        """Send what was counted since the last time. If that is impossible now, it stays for the next time."""
        report = self._request_counts.unreported()
        if report is not None:
            self._control.send(report)
            self._request_counts.reported(report)

    # Requests and calls

    def _granted(self, message: work.Granted, _: bytes) -> None:
        for grant in message.grants:
            exchange = self._pending.exchanges.get(grant.number)
            try:
                if exchange is not None:
                    exchange.granted(grant.worker, grant.model, grant.attempt)
            except Exception as problem:  # noqa: BLE001 - the other grants are about other requests
                self._on_error(problem, grant.number)

    def _queue_status(self, message: work.QueueStatus, _: bytes) -> None:
        exchange = self._pending.exchanges.get(message.number)
        if exchange is not None and exchange.queue_status is None:
            exchange.queue_status = message

    def _key_usage(self, message: KeyUsage, _: bytes) -> None:
        exchange = self._pending.exchanges.get(message.number)
        if exchange is not None:
            exchange.take_rate_limits(message.limits)
        elif (call := self._pending.calls.get(message.number)) is not None:
            call.rate_limits = message.limits

    def _refused(self, message: work.Refused, _: bytes) -> None:
        if message.attempt:
            exchange = self._pending.exchanges.get(message.number)
            if exchange is not None:
                exchange.refused(message.failure, message.attempt)
            return
        call = self._pending.calls.get(message.number)
        if call is not None:
            call.refuse(message.failure)

    def _deliver_to_call(self, message: CallResult | Progress | LogBatch, payload: bytes) -> None:
        call = self._pending.calls.get(message.number)
        if call is not None:
            call.deliver(message, payload)

    # Workers

    def _worker_up(self, message: peers.WorkerUp, _: bytes) -> None:
        self._subscriptions.up(message.worker, message.endpoint, message.node)

    def _worker_gone(self, message: peers.WorkerGone, _: bytes) -> None:
        self._subscriptions.gone(message)

    def _recovered(self, message: recovery.Recovered, _: bytes) -> None:
        living = frozenset(message.workers)
        self._subscriptions.recovered(living, message.nodes)
        working = {exchange.worker for exchange in self._pending.exchanges.values() if exchange.worker}
        working |= self._received_ends.workers
        for worker in working - living:
            if not self._subscriptions.knows(worker):  # otherwise it is settled when all its events are read
                self._end_worker(worker, WORKER_ENDED)

    def _end_worker(self, worker: str, failure: Failure) -> None:
        """No more events of ``worker`` will arrive."""
        self._last_events.pop(worker, None)
        ends = self._received_ends.of(worker)
        if ends:
            self._session.send_end(work.AnswersReceived(worker, ends))
        self._pending.fail_attempts_of(worker, failure)

    def _cut_off(self, worker: str, node: str) -> None:
        """What a worker on another node did for this gateway is lost.

        The supervisor may learn a moment later that the worker is gone, or its whole node: that is the better reason, and
        an attempt that is repeated before might go to the same worker. From another node than the supervisor's, it may not
        learn it, and the client is told in time: the longer the worker was silent, the sooner.
        """
        lost = self._pending.attempts_of(worker)
        broken = Failure(Code.LOST, f"the connection to node {node}, where the model runs, is broken")
        if self._elsewhere:
            silent = time.monotonic() - self._last_events.pop(worker, -math.inf)
            wait = max(CUT_OFF_ELSEWHERE_S, CUT_OFF_TIMEOUT_S - silent)
            self._control.call_later(wait, lambda: self._pending.fail_attempts(lost, broken, begun=True))
        self._control.call_later(CUT_OFF_TIMEOUT_S, lambda: self._pending.fail_attempts(lost, broken))

    # The supervisor

    def _welcome(self, message: peers.Welcome, _: bytes) -> None:
        if message.clock:
            SERVER_CLOCK.set(message.clock)
        logs.set_level(message.log_level)
        self._session.welcomed(message.pid, message.code, message.keys)
        for report in self._request_counts.latest:
            self._control.send(report, must_arrive=True)

    def _server_changed(self, message: ServerReadiness, _: bytes) -> None:
        self._session.server_changed(message)

    def _ping(self, message: peers.Ping, _: bytes) -> None:
        errors = INTERNAL_ERRORS.count
        try:
            self.report_requests()
            self._control.send(peers.Pong(message.number, errors - self._errors_reported))
        except LemonbusError as problem:
            logs.get_logger().warning("pong not sent", reason=problem.failure.message)
            return
        self._errors_reported = errors

    def _collect_metrics(self, message: metrics.CollectMetrics, _: bytes) -> None:
        try:
            self.report_requests()
            self._control.send(metrics.MetricsCollected(message.number))
        except LemonbusError as problem:
            logs.get_logger().warning("metrics not sent", reason=problem.failure.message)

    def _pause_accepting(self, _message: peers.PauseAccepting, _: bytes) -> None:
        self._session.pause_accepting()

    def _rejoin(self, _message: peers.Rejoin, _: bytes) -> None:
        self._control.call_later(0.0, self._session.rejoin)  # the connection on which this came is being read

    def _draining(self, message: peers.Draining | peers.Shutdown, _: bytes) -> None:
        self._session.drain(message.grace, replaced=isinstance(message, peers.Shutdown))

    # Errors of ours

    def _on_error(self, problem: Exception, number: int | None) -> None:
        """Log and count an exception. The request or call that it is about is answered with 500."""
        waiting = self._pending.find(number) if number is not None else None
        label = waiting.label if waiting is not None else ""
        fields = {"request_id": label} if label else {}
        INTERNAL_ERRORS.log(problem, **fields)
        if waiting is not None:
            self._pending.fail_one(waiting, INTERNAL_FAILURE)
