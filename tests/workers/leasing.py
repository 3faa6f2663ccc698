"""The straight way to a worker: what its gateway sends under a lease."""

from __future__ import annotations

import json
from typing import Any, Self

import zmq

from protocol import endpoints, wire
from protocol.events import Event, Kind
from protocol.leases import LeaseEnded, Lend, Offer
from protocol.work import Cancel, Run
from tests.workers.stand import Stand


def lending(number: int, slots: int, gateway: str = "g1", first: int = 0, weight: int = 1) -> Lend:
    """What the supervisor says when it lends; a request that is not there any more has ended before."""
    return Lend(gateway, number, slots, "asked-for", "chat/completions", "m", first or 77, 1, weight)


class Straight:
    """A gateway's socket to the worker of a stand."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.socket: zmq.Socket[bytes] = stand.context.socket(zmq.PUSH)
        self.socket.connect(endpoints.runs(stand.runtime.path, stand.boot, stand.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(0)

    def lend(self, number: int, slots: int, first: int = 0, weight: int = 1) -> Offer:
        """Lend slots, and return what the gateway is told of it; ``first``: the request that uses some of them."""
        self.stand.send(lending(number, slots, self.stand.gateway, first, weight))
        event = self.until(Kind.LENT)
        assert (event.number, event.attempt) == ((first, 1) if first else (0, 0))
        offer: Offer = wire.unpack(event.data, Offer)
        return offer

    def lend_in_vain(self, number: int, first: int = 0) -> LeaseEnded:
        """Lend what cannot be lent now."""
        self.stand.send(lending(number, 2, self.stand.gateway, first))
        ended = self.stand.expect(LeaseEnded)
        assert ended.lease == number
        return ended

    def until(self, kind: Kind, number: int | None = None) -> Event:
        """Return the next event about leases of this kind, or about this lease; those before it are forgotten."""

        def found() -> Event | None:
            while self.stand.leases:
                event = self.stand.leases.pop(0)
                if event.kind == kind and number in (None, event.count):
                    return event
            return None

        return self.stand.until(found, kind.name)

    def run(self, number: int, lease: int, body: Any, *, stream: bool = False) -> None:
        run = Run(
            self.stand.gateway,
            number,
            1,
            "asked-for",
            "chat/completions",
            f"req-{number}",
            stream=stream,
            lease=lease,
        )
        self.socket.send(wire.encode(run, json.dumps(body).encode()))

    def cancel(self, number: int) -> None:
        self.socket.send(wire.encode(Cancel(self.stand.gateway, number, 1, "cancelled")))
