"""What this gateway sends to the present supervisor, and to each that takes over: a snapshot, then all that waits, in order.

Invariants:

* A request or a call is sent once on each connection, in the order of its arrival: what is submitted while older ones are
  still to be sent waits behind them.
* Everything that a supervisor must know is in :class:`PendingRequests`, so a connection can be dropped with what it holds.
* One iteration of the hub's loop sends a bounded number of bytes: streams go on meanwhile.
"""

from __future__ import annotations

import time
from typing import Final

from gateway.bus.call_repetition import OUTCOME_UNKNOWN
from gateway.bus.calls import SupervisorCall
from gateway.bus.message_handlers import ControlSocket
from gateway.bus.pending_requests import PendingRequests
from gateway.internal_errors import INTERNAL_ERRORS, INTERNAL_FAILURE
from gateway.requests.exchange import RequestExchange
from protocol.messages.recovery import GatewaySnapshot, RequestSnapshot
from protocol.messages.work import SubmitRequest
from protocol.wire import envelope

HELLO_INTERVAL_S: Final = 1.0
"""Seconds after which a connection without a Welcome is replaced."""
_SEND_MESSAGES: Final = 64
_SEND_BYTES: Final = 4 * 1024 * 1024
"""What is sent again in one iteration of the loop: messages, and about how many bytes."""


def snapshot(pending: PendingRequests) -> GatewaySnapshot:
    """Return what a new supervisor must know: every attempt that has not ended."""
    return GatewaySnapshot(
        [
            RequestSnapshot(each.number, each.attempt, each.since, each.worker, each.caller)
            for each in pending.exchanges.values()
            if not each.over
        ]
    )


class SupervisorConnection:
    """The connection with one supervisor after the other. Used in the hub and by greenlets; lets no other greenlet run."""

    def __init__(self, sockets: ControlSocket, pending: PendingRequests) -> None:
        """Prepare; nothing is sent before :meth:`connect`."""
        self._sockets = sockets
        self._pending = pending
        self._unsent: dict[int, RequestExchange | SupervisorCall] = {}
        """What this connection still has to send, oldest first."""
        self._sending = False
        """Whether the loop will go on with that."""
        self.welcomed = False
        self.waiting_since = time.monotonic()
        """Since when no supervisor has answered."""
        self._hello_at = 0.0

    # From one supervisor to the next

    def connect(self) -> None:
        """Say Hello on a new connection, and send again what no worker has."""
        self._sockets.read_control()  # what the last supervisor said counts
        if self.welcomed:
            self.welcomed, self.waiting_since = False, time.monotonic()
        self._hello_at = time.monotonic()
        self._sockets.reconnect(envelope.pack_payload(snapshot(self._pending)))
        self._unsent = {n: each for n, each in self._pending.exchanges.items() if not each.worker and not each.over}
        self._unsent |= {n: each for n, each in self._pending.calls.items() if each.repeatable}
        self._send_some()
        for exchange in list(self._pending.exchanges.values()):
            exchange.supervisor_ended()
        for call in [each for each in self._pending.calls.values() if not each.repeatable]:
            self._pending.fail_one(call, OUTCOME_UNKNOWN)

    def welcome(self, supervisor_pid: int) -> None:
        """Note that a supervisor has taken this process over, and watch its process."""
        self.welcomed = True
        for call in self._pending.calls.values():
            call.exposed = call.exposed or call.number not in self._unsent
        if supervisor_pid:
            self._sockets.watch_supervisor(supervisor_pid)

    def repeat_hello(self, now: float) -> None:
        """Replace a connection on which no Welcome has come for a while. ``now``: the time of ``time.monotonic``."""
        if not self.welcomed and now - self._hello_at >= HELLO_INTERVAL_S:
            self.connect()

    # Sending

    def submit(self, exchange: RequestExchange) -> None:
        """Send the present attempt of a request; raises ``LemonbusError`` if too many messages wait."""
        if self._unsent:
            self._unsent.setdefault(exchange.number, exchange)
        else:
            self._send_request(exchange, since=0.0 if self.welcomed else exchange.since)

    def call(self, call: SupervisorCall) -> None:
        """Send a call; raises as :meth:`submit`."""
        if self._unsent:
            self._unsent[call.number] = call
        else:
            call.exposed = self.welcomed
            self._sockets.send(call.message, call.payload)

    def _send_some(self) -> None:
        self._sending = False
        size = count = 0
        while self._unsent and count < _SEND_MESSAGES and size < _SEND_BYTES:
            number = next(iter(self._unsent))
            waiting = self._unsent.pop(number)
            if self._pending.find(number) is not waiting:
                continue
            count += 1
            try:
                size += self._send_again(waiting)
            except Exception as problem:  # noqa: BLE001 - those behind it must be sent
                INTERNAL_ERRORS.log(problem, request_id=waiting.label)
                self._pending.fail_one(waiting, INTERNAL_FAILURE)
        if self._unsent and not self._sending:
            self._sending = True
            self._sockets.call_soon(self._send_some)

    def _send_again(self, waiting: RequestExchange | SupervisorCall) -> int:
        if isinstance(waiting, RequestExchange):
            if waiting.over:
                return 0
            self._send_request(waiting, since=waiting.since, must_arrive=True)
            return len(waiting.request.body)
        message = waiting.repeat()
        waiting.exposed = waiting.exposed or self.welcomed
        self._sockets.send(message, waiting.payload, must_arrive=True)
        return len(waiting.payload)

    def _send_request(self, exchange: RequestExchange, *, since: float, must_arrive: bool = False) -> None:
        request = exchange.request
        self._sockets.send(
            SubmitRequest(
                number=exchange.number,
                attempt=exchange.attempt,
                model=request.model,
                endpoint=request.endpoint,
                label=request.label,
                weight=request.weight,
                size=len(request.body),
                stream=request.stream,
                suspect=exchange.suspect,
                retry_reason=exchange.retry_reason,
                spool=exchange.spool,
                query=request.query,
                caller=exchange.caller,
                since=since,
                download_refusal=exchange.download_refusal,
                ttl=request.ttl,
            ),
            b"" if exchange.spool else request.body,
            must_arrive=must_arrive,
        )
