"""The straight way to a worker: requests under a lease, which nobody is asked about."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.requests.exchange import RequestExchange
from gateway.requests.leases import GatewayLeases
from protocol.messages.events import Event, EventKind
from protocol.messages.leases import LeaseTerms
from protocol.messages.work import Cancel, Run
from protocol.wire import envelope


class WorkerSockets(Protocol):
    """The sockets to the workers, as far as this uses them (``bus.py``)."""

    def run(self, worker: str, message: msgspec.Struct, payload: bytes = b"") -> bool:
        """Send to a worker itself; return False if that cannot be now."""

    def lent(self, worker: str) -> None:
        """A worker takes requests from us: get ready to send."""


class LeasedDispatcher:
    """What was lent to this gateway, put to use. In the hub only."""

    def __init__(self, gateway: str, workers: WorkerSockets) -> None:
        """Nothing is lent yet."""
        self._gateway, self._workers = gateway, workers
        self._leases = GatewayLeases()

    def send(self, exchange: RequestExchange) -> bool:
        """Send an attempt to a worker, if slots are lent to us for it; return whether it is on its way."""
        request = exchange.request
        lease = self._leases.take(request.model, request.endpoint, request.weight)
        if lease is None:
            return False
        run = Run(
            gateway=self._gateway,
            number=exchange.number,
            attempt=exchange.attempt,
            model=request.model,
            endpoint=request.endpoint,
            label=request.label,
            stream=request.stream,
            spool=exchange.spool,
            query=request.query,
            lease=lease.number,
            weight=request.weight,
        )
        exchange.lease = lease
        exchange.granted(lease.worker, lease.model, exchange.attempt)
        if self._workers.run(lease.worker, run, b"" if exchange.spool else request.body):
            return True
        exchange.returned()
        return False

    def cancel(self, exchange: RequestExchange, message: Cancel) -> bool:
        """Tell the worker of an attempt that went this way that nobody wants it; return whether it did."""
        return exchange.lease is not None and self._workers.run(exchange.worker, message)

    def take(self, event: Event, worker: str, exchange: RequestExchange | None) -> None:
        """Take note of what a worker lends, or lends no more; raises ``MalformedError``.

        ``exchange``: the event's, which runs under the lease from now on.
        """
        if event.kind == EventKind.LEASE_ISSUED:
            offer: LeaseTerms = envelope.unpack_payload(event.data, LeaseTerms)
            self._workers.lent(worker)
            lease = self._leases.lent(worker, offer)
            if exchange is not None and exchange.attempt == event.attempt and exchange.lease is None:
                lease.busy += exchange.request.weight
                exchange.lease = lease
                exchange.granted(worker, offer.model, event.attempt)
        elif event.kind == EventKind.LEASE_ENDED:
            self._leases.over(worker, event.count)

    def gone(self, worker: str) -> None:
        """Use nothing of a worker any more."""
        self._leases.gone(worker)
