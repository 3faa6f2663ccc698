"""A gateway that sends requests to a worker itself, under a lease."""

from __future__ import annotations

import json
from typing import Any, Self

import zmq

from protocol.messages.events import Event, EventKind
from protocol.messages.leases import IssueLease, LeaseEnded, LeaseTerms
from protocol.messages.work import Cancel, Run
from protocol.wire import endpoints, envelope
from tests.workers.worker_process import WorkerProcess


def issue_lease(number: int, slots: int, gateway: str = "g1", first: int = 0, weight: int = 1) -> IssueLease:
    """Return the supervisor's message; without ``first`` it names a request that has ended."""
    return IssueLease(gateway, number, slots, "asked-for", "chat/completions", "m", first or 77, 1, weight)


class LeaseClient:
    """A gateway's socket to a worker."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.socket: zmq.Socket[bytes] = worker.context.socket(zmq.PUSH)
        self.socket.connect(endpoints.runs(worker.runtime.path, worker.boot, worker.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(0)

    def issue(self, number: int, slots: int, first: int = 0, weight: int = 1) -> LeaseTerms:
        """Issue a lease and return the terms that the gateway receives; ``first``: the request that uses some of its slots."""
        self.worker.send(issue_lease(number, slots, self.worker.gateway, first, weight))
        event = self.until(EventKind.LEASE_ISSUED)
        assert (event.number, event.attempt) == ((first, 1) if first else (0, 0))
        terms: LeaseTerms = envelope.unpack_payload(event.data, LeaseTerms)
        return terms

    def issue_refused(self, number: int, first: int = 0) -> LeaseEnded:
        """Issue a lease that ends at once; return the message of its end."""
        self.worker.send(issue_lease(number, 2, self.worker.gateway, first))
        ended = self.worker.expect(LeaseEnded)
        assert ended.lease == number
        return ended

    def until(self, kind: EventKind, number: int | None = None) -> Event:
        """Return the next event of this kind, or about this lease; discard those before it."""

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
