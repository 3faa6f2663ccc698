"""The straight way to a worker: what its gateway sends under a lease."""

from __future__ import annotations

import json
from typing import Any, Self

import zmq

from protocol.messages.events import Event, EventKind
from protocol.messages.leases import IssueLease, LeaseEnded, LeaseTerms
from protocol.messages.work import Cancel, Run
from protocol.wire import endpoints, envelope
from tests.workers.worker_process import WorkerProcess


def lend_message(number: int, slots: int, gateway: str = "g1", first: int = 0, weight: int = 1) -> IssueLease:
    """What the supervisor says when it lends; a request that is not there any more has ended before."""
    return IssueLease(gateway, number, slots, "asked-for", "chat/completions", "m", first or 77, 1, weight)


class LeaseClient:
    """A gateway's socket to the worker of a stand."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.socket: zmq.Socket[bytes] = worker.context.socket(zmq.PUSH)
        self.socket.connect(endpoints.runs(worker.runtime.path, worker.boot, worker.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(0)

    def lend(self, number: int, slots: int, first: int = 0, weight: int = 1) -> LeaseTerms:
        """Lend slots, and return what the gateway is told of it; ``first``: the request that uses some of them."""
        self.worker.send(lend_message(number, slots, self.worker.gateway, first, weight))
        event = self.until(EventKind.LEASE_ISSUED)
        assert (event.number, event.attempt) == ((first, 1) if first else (0, 0))
        offer: LeaseTerms = envelope.unpack_payload(event.data, LeaseTerms)
        return offer

    def lend_refused(self, number: int, first: int = 0) -> LeaseEnded:
        """Lend what cannot be lent now."""
        self.worker.send(lend_message(number, 2, self.worker.gateway, first))
        ended = self.worker.expect(LeaseEnded)
        assert ended.lease == number
        return ended

    def until(self, kind: EventKind, number: int | None = None) -> Event:
        """Return the next event about leases of this kind, or about this lease; those before it are forgotten."""

        def found() -> Event | None:
            while self.worker.leases:
                event = self.worker.leases.pop(0)
                if event.kind == kind and number in (None, event.count):
                    return event
            return None

        return self.worker.until(found, kind.name)

    def run(self, number: int, lease: int, body: Any, *, stream: bool = False) -> None:
        run = Run(
            self.worker.gateway,
            number,
            1,
            "asked-for",
            "chat/completions",
            f"req-{number}",
            stream=stream,
            lease=lease,
        )
        self.socket.send(envelope.encode(run, json.dumps(body).encode()))

    def cancel(self, number: int) -> None:
        self.socket.send(envelope.encode(Cancel(self.worker.gateway, number, 1, "cancelled")))
