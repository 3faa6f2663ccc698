"""The straight way to a worker: requests under a lease, which nobody is asked about."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.exchange import Exchange
from gateway.leases import Leases
from protocol import wire
from protocol.events import Event, Kind
from protocol.leases import Offer
from protocol.work import Cancel, Run


class Workers(Protocol):
    """The sockets to the workers, as far as this uses them (``bus.py``)."""

    def run(self, worker: str, message: msgspec.Struct, payload: bytes = b"") -> bool:
        """Send to a worker itself; return False if that cannot be now."""

    def lent(self, worker: str) -> None:
        """A worker takes requests from us: get ready to send."""


class Straight:
    """What was lent to this gateway, put to use. In the hub only."""

    def __init__(self, gateway: str, workers: Workers) -> None:
        """Nothing is lent yet."""
        self._gateway, self._workers = gateway, workers
        self._leases = Leases()

    def send(self, exchange: Exchange) -> bool:
        """Send an attempt to a worker, if slots are lent to us for it; return whether it is on its way."""
        question = exchange.question
        lease = self._leases.take(question.model, question.endpoint, question.weight)
        if lease is None:
            return False
        run = Run(
            gateway=self._gateway,
            number=exchange.number,
            attempt=exchange.attempt,
            model=question.model,
            endpoint=question.endpoint,
            label=question.label,
            stream=question.stream,
            spool=exchange.spool,
            query=question.query,
            lease=lease.number,
            weight=question.weight,
        )
        exchange.lease = lease
        exchange.granted(lease.worker, lease.model, exchange.attempt)
        if self._workers.run(lease.worker, run, b"" if exchange.spool else question.body):
            return True
        exchange.returned()
        return False

    def cancel(self, exchange: Exchange, message: Cancel) -> bool:
        """Tell the worker of an attempt that went this way that nobody wants it; return whether it did."""
        return exchange.lease is not None and self._workers.run(exchange.worker, message)

    def take(self, event: Event, worker: str, exchange: Exchange | None) -> None:
        """Take note of what a worker lends, or lends no more; raises ``MalformedError``.

        ``exchange``: the event's, which runs under the lease from now on.
        """
        if event.kind == Kind.LENT:
            offer: Offer = wire.unpack(event.data, Offer)
            self._workers.lent(worker)
            lease = self._leases.lent(worker, offer)
            if exchange is not None and exchange.attempt == event.attempt and exchange.lease is None:
                lease.busy += exchange.question.weight
                exchange.lease = lease
                exchange.granted(worker, offer.model, event.attempt)
        elif event.kind == Kind.LEASE_OVER:
            self._leases.over(worker, event.count)

    def gone(self, worker: str) -> None:
        """Use nothing of a worker any more."""
        self._leases.gone(worker)
