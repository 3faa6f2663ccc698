"""What this gateway sends to each new supervisor: a snapshot, then all waiting requests and calls, in order.

Invariants:

* A request or a call is sent once on each connection, in the order of arrival. While older ones are still to be sent,
  newer ones wait behind them.
* Everything that a supervisor must know is in :class:`PendingRequests`, so a connection can be dropped with what it
  holds, and nothing is sent while there is none.
* One iteration of the hub's loop sends a bounded number of bytes, so streams go on meanwhile.
"""

from __future__ import annotations

import time
from typing import Final

from gateway.bus.calls import OUTCOME_UNKNOWN, SupervisorCall
from gateway.bus.interfaces import ControlSocket
from gateway.bus.pending_requests import PendingRequests
from gateway.internal_errors import INTERNAL_ERRORS, INTERNAL_FAILURE
from gateway.requests.exchange import RequestExchange
from protocol.failures import Code, Failure
from protocol.messages.calls import AbandonCall
from protocol.messages.recovery import GatewaySnapshot, RequestSnapshot
from protocol.messages.work import AnswerLost, AnswersReceived, Cancel, SubmitRequest
from protocol.wire import envelope
from protocol.wire.bus_connection import HELLO_INTERVAL_S, probe_interval

MAX_WAITING: Final = 10_000
"""How many requests and calls wait in this process while there is no connection."""
_SEND_MESSAGES: Final = 64
_SEND_BYTES: Final = 4 * 1024 * 1024
"""What is sent again in one iteration of the loop: messages, and the approximate bytes."""


def snapshot(pending: PendingRequests) -> GatewaySnapshot:
    """Return what a new supervisor must know: every attempt that has not ended."""
    now = time.monotonic()
    return GatewaySnapshot(
        [
            RequestSnapshot(
                each.number,
                each.attempt,
                now - each.since,
                each.worker,
                each.caller,
                more=each.request.more,
                label=each.request.label,
                endpoint=each.request.endpoint,
                dialect=each.dialect,
                stream=each.request.stream,
            )
            for each in pending.exchanges.values()
            if not each.over
        ]
    )


EndMessage = Cancel | AnswerLost | AnswersReceived | AbandonCall
"""How something ended that was sent before."""


class SupervisorConnection:
    """The connection to one supervisor after the other.

    Used in the hub and by greenlets; never switches to another greenlet.
    """

    def __init__(self, sockets: ControlSocket, pending: PendingRequests) -> None:
        """Prepare; nothing is sent before :meth:`connect`."""
        self._sockets = sockets
        self._pending = pending
        self._unsent: dict[int, RequestExchange | SupervisorCall] = {}
        """What this connection still has to send, oldest first."""
        self._sending = False
        """Whether the loop will continue sending it."""
        self._connected = False
        """Whether Hello was sent to a process that has not ended."""
        self._looking = False
        """Whether the loop will look for a supervisor again."""
        self.welcomed = False
        self.waiting_since = time.monotonic()
        """Since when no supervisor has answered."""
        self._hello_at = 0.0

    # From one supervisor to the next

    def connect(self) -> None:
        """Say Hello to the supervisor that listens, and send it everything that no worker has.

        If none listens, look again soon.
        """
        self._disconnect()
        supervisor_pid = self._sockets.find_supervisor()
        if not supervisor_pid:
            self._look_later(time.monotonic() - self.waiting_since)
            return
        self._hello_at = time.monotonic()
        self._connected = True
        self._sockets.connect_control(envelope.pack_payload(snapshot(self._pending)))
        self._sockets.watch_supervisor(supervisor_pid)
        self._unsent = {n: each for n, each in self._pending.exchanges.items() if not each.worker and not each.over}
        self._unsent |= {n: each for n, each in self._pending.calls.items() if each.repeatable}
        self._send_some()

    def supervisor_ended(self) -> None:
        """Drop the connection with everything that waits in it, and look for the next supervisor."""
        if not self.welcomed:
            # It was only seen to listen. A dead one may also listen, as long as a child of it holds the socket.
            self._disconnect()
            self._look_later(0.0)
            return
        self._sockets.read_control()  # what it has said counts
        self.welcomed, self.waiting_since = False, time.monotonic()
        self.connect()
        for exchange in list(self._pending.exchanges.values()):
            exchange.supervisor_ended()
        for call in [each for each in self._pending.calls.values() if not each.repeatable]:
            self._pending.fail_one(call, OUTCOME_UNKNOWN)

    def welcome(self, supervisor_pid: int) -> None:
        """Note that a supervisor has taken over this process, and watch the supervisor's process."""
        self.welcomed = True
        for call in self._pending.calls.values():
            call.exposed = call.exposed or call.number not in self._unsent
        self._sockets.watch_supervisor(supervisor_pid)

    def repeat_hello(self, now: float) -> None:
        """Replace a connection that broke before a Welcome came. ``now``: from ``time.monotonic``.

        A living but slow supervisor gets only one Hello: what it sends with its Welcome would be lost with the
        connection.
        """
        waits = self._connected and not self.welcomed and now - self._hello_at >= HELLO_INTERVAL_S
        if waits and self._sockets.connection_is_broken():
            self.connect()

    def close(self) -> None:
        """Stop looking for a supervisor: the server ends."""
        self._disconnect()
        self._looking = True

    def _disconnect(self) -> None:
        self._connected = False
        self._unsent = {}
        self._sockets.disconnect_control()

    def _look_later(self, waited: float) -> None:
        if not self._looking:
            self._looking = True
            self._sockets.call_later(probe_interval(waited), self._look)

    def _look(self) -> None:
        self._looking = False
        if not self._connected:
            self.connect()

    # Sending

    def submit(self, exchange: RequestExchange) -> None:
        """Send the present attempt of a request; raises ``LemonbusError`` if too many messages wait."""
        if not self._connected:
            self._check_waiting()
        elif self._unsent:
            self._unsent.setdefault(exchange.number, exchange)
        else:
            self._send_request(exchange, again=not self.welcomed)

    def call(self, call: SupervisorCall) -> None:
        """Send a call; raises as :meth:`submit`."""
        if not self._connected:
            self._check_waiting()
        elif self._unsent:
            self._unsent[call.number] = call
        else:
            call.exposed = self.welcomed
            self._sockets.send(call.message, call.payload)

    def send_end(self, message: EndMessage) -> None:
        """Tell the supervisor how something ended that was sent before.

        The next supervisor learns it from the snapshot.
        """
        if self._connected:
            # A full outbox must not lose it: the request would stay queued and be granted to no client. At most one
            # follows each attempt and call that the outbox has taken, so these messages are also bounded.
            self._sockets.send(message, must_arrive=True)

    def _check_waiting(self) -> None:
        if len(self._pending.exchanges) + len(self._pending.calls) > MAX_WAITING:
            raise Failure(Code.OVERLOADED, "too many requests wait for the supervisor", retry_after=1).raised()

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
            self._sockets.call_later(0.0, self._send_some)

    def _send_again(self, waiting: RequestExchange | SupervisorCall) -> int:
        if isinstance(waiting, RequestExchange):
            if waiting.over:
                return 0
            self._send_request(waiting, again=True, must_arrive=True)
            return len(waiting.request.body)
        message = waiting.repeat()
        waiting.exposed = waiting.exposed or self.welcomed
        self._sockets.send(message, waiting.payload, must_arrive=True)
        return len(waiting.payload)

    def _send_request(self, exchange: RequestExchange, *, again: bool, must_arrive: bool = False) -> None:
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
                age=time.monotonic() - exchange.since if again else None,
                download_refusal=exchange.download_refusal,
                ttl=request.ttl,
                context=request.context,
                reservation=exchange.reservation,
                admitted=exchange.rate_limits is not None,
                earlier=request.earlier,
                more=request.more,
                after=request.after,
                address=request.address,
                digest=request.digest,
                via=request.via,
                dialect=exchange.dialect,
                batch=exchange.batch,
            ),
            b"" if exchange.spool else request.body,
            must_arrive=must_arrive,
        )
