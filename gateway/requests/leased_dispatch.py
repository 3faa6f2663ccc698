"""Sends requests under a lease directly to their worker, without the supervisor."""

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
    """The sockets to the workers, as far as the dispatcher uses them (``gateway/bus/sockets.py``)."""

    def run(self, worker: str, message: msgspec.Struct, payload: bytes = b"") -> bool:
        """Send to a worker; return False if it cannot take the message now."""

    def open_worker(self, worker: str) -> None:
        """Connect to a worker that issued a lease."""


class LeasedDispatcher:
    """Uses the leases of this gateway. Called in the hub only."""

    def __init__(self, gateway: str, workers: WorkerSockets) -> None:
        """Start without leases."""
        self._gateway, self._workers = gateway, workers
        self._leases = GatewayLeases()

    def send(self, exchange: RequestExchange) -> bool:
        """Send an attempt to a worker of which this gateway has a free slot; return whether it was sent."""
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
        """Cancel an attempt that was sent directly, at its worker; return whether that was done."""
        return exchange.lease is not None and self._workers.run(exchange.worker, message)

    def take_event(self, event: Event, worker: str, exchange: RequestExchange | None) -> None:
        """Add or end the lease of an event; raises ``MalformedError``.

        ``exchange``: the event's, which runs under the lease from now on.
        """
        if event.kind == EventKind.LEASE_ISSUED:
            offer: LeaseTerms = envelope.unpack_payload(event.data, LeaseTerms)
            self._workers.open_worker(worker)
            lease = self._leases.add(worker, offer)
            if exchange is not None and exchange.attempt == event.attempt and exchange.lease is None:
                lease.busy += exchange.request.weight
                exchange.lease = lease
                exchange.granted(worker, offer.model, event.attempt)
        elif event.kind == EventKind.LEASE_ENDED:
            self._leases.end(worker, event.count)

    def remove_worker(self, worker: str) -> None:
        """Forget the leases of a worker that is gone."""
        self._leases.remove_worker(worker)
