"""Sends inference requests to the supervisor, and tells it how they ended."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.bus.admission import GatewayAdmission
from gateway.bus.pending_requests import PendingRequests
from gateway.bus.supervisor_connection import SupervisorConnection
from gateway.http.request_context import RequestContext
from gateway.http.request_counts import RequestCounts
from gateway.requests.admission_states import AdmissionState
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.received_ends import ReceivedEnds
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages import work
from protocol.messages.events import Outcome
from protocol.runtime import logs


class RequestDispatcher:
    """The :class:`~gateway.requests.exchange.ExchangeDispatcher` of all requests of this process."""

    def __init__(
        self,
        gateway: str,
        settings: Settings,
        spool: Spool,
        admission: GatewayAdmission,
        pending: PendingRequests,
        connection: SupervisorConnection,
        received_ends: ReceivedEnds,
        counts: RequestCounts,
        hold: Callable[[RequestKey, bool], None],
    ) -> None:
        """Add requests to ``pending``, and their ends to ``received_ends``. Large bodies are kept in ``spool``.

        ``counts`` knows the API families of the routes. ``hold`` lets the worker of an attempt hold its answer, or go on.
        """
        self.gateway = gateway
        """The id of this process."""
        self._settings, self._spool = settings, spool
        self._admission, self._pending, self._connection = admission, pending, connection
        self._received_ends, self._counts, self._hold = received_ends, counts, hold
        self.inbox_bytes = settings.inbox_bytes
        self.node_of: Callable[[str], str] = lambda _worker: ""
        """Returns the name of the node that a worker runs on; empty if it is this one."""

    def start(self, request: InferenceRequest, context: RequestContext, reservation: int) -> RequestExchange:
        """Send an inference request; raises ``LemonbusError`` if it is not admitted, or if the spool is full.

        ``context``: of the HTTP request, whose key it counts against. ``reservation``: see
        :class:`~protocol.messages.work.SubmitRequest`.
        """
        self._admit(request, reservation)
        context.check_access()
        caller = context.caller
        if caller is not None:
            caller = caller.reserving(request.reserved_tokens)
        exchange = RequestExchange(
            self,
            request,
            self._pending.next_number(),
            caller,
            context.download_refusal,
            reservation,
            context.withdrawal,
            self._counts.labels(context.route).dialect,
            batch=context.batch,
        )
        if logs.trace_enabled():
            fields = {"request_id": request.label, "endpoint": request.endpoint, "model": request.model}
            logs.get_logger().trace("inference request", **fields, body=request.body.decode("utf-8", "replace"))
        try:
            if len(request.body) > self._settings.spool_over:
                exchange.spool = self._spool.keep(request.body)
                self._admit(request, reservation)  # other greenlets ran meanwhile
            # Not earlier: a new connection sends everything in it.
            self._pending.exchanges[exchange.number] = exchange
            exchange.begin()
        except BaseException:
            self.release(exchange)
            raise
        return exchange

    def _admit(self, request: InferenceRequest, reservation: int) -> None:
        """Raise if a request is not admitted. A later piece was admitted with the first: it goes on while this process drains.

        A drain of the whole server refuses nothing that was reserved before, and no question about an engine's state.
        """
        served = self._connection.welcomed and self._admission.state is not AdmissionState.LOST
        if request.earlier is not None and served:
            return
        if request.earlier is not None or reservation or request.endpoint in work.ENGINE_STATE_ENDPOINTS:
            self._admission.admit()
        else:
            self._admission.admit_inference()

    def release(self, exchange: RequestExchange) -> None:
        """Forget the exchange, and remove its spool file. Idempotent."""
        self.forget(exchange)
        if exchange.spool:
            name, exchange.spool = exchange.spool, ""
            self._spool.drop(name)

    # For exchanges

    def submit(self, exchange: RequestExchange) -> None:
        """Send the present attempt."""
        self._connection.submit(exchange)

    def cancel(self, exchange: RequestExchange, reason: str) -> None:
        """Cancel the present attempt: the supervisor knows where it waits or runs."""
        self._connection.send_end(work.Cancel(self.gateway, exchange.number, exchange.attempt, reason))

    def hold(self, exchange: RequestExchange, on: bool) -> None:
        """Let the engine of the present attempt wait, or go on."""
        self._hold(RequestKey(self.gateway, exchange.number, exchange.attempt), on)

    def report_lost(self, exchange: RequestExchange) -> None:
        """Report that a worker was lost with its answer, and how many tokens the client had of a stream."""
        tokens = exchange.inbox.tokens_received if exchange.request.stream else 0
        self._connection.send_end(
            work.AnswerLost(exchange.model, tokens, exchange.caller, exchange.number, exchange.attempt)
        )

    def answered(self, exchange: RequestExchange, worker: str, outcome: Outcome) -> None:
        """Keep the end of an answer, in case its worker cannot report it."""
        self._received_ends.add(self.gateway, exchange, worker, outcome)

    def forget(self, exchange: RequestExchange) -> None:
        """Deliver no more events to it."""
        self._pending.exchanges.pop(exchange.number, None)

    def with_node(self, failure: Failure, worker: str) -> Failure:
        """Name the worker's node in the failure of an answer that was damaged on its way."""
        node = self.node_of(worker) if failure.code is Code.LOST else ""
        text = f"{failure.message}; the model runs on node {node}"
        return msgspec.structs.replace(failure, message=text) if node else failure

    def may_retry(self) -> bool:
        """Return whether there is, or will be, a supervisor for another attempt."""
        return self._admission.state is not AdmissionState.LOST
