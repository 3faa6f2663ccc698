"""A fake worker: records the requests that are sent to it, and publishes the events of a test."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zmq

from protocol import ids
from protocol.failures import Failure
from protocol.messages import events, work
from protocol.messages.events import Event, EventKind, Outcome
from protocol.messages.leases import LeaseTerms
from protocol.wire import endpoints, envelope

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n'
DEADLINE = 10.0


class ReceivedRequest(msgspec.Struct):
    """A ``SubmitRequest`` that arrived, and the gateway that sent it."""

    gateway: str
    message: work.SubmitRequest
    body: bytes

    def event(self, seq: int, kind: EventKind, data: bytes = b"", count: int = 0) -> Event:
        return Event(self.message.number, self.message.attempt, seq, kind, count, data)

    def tokens(self, first: int, last: int) -> list[Event]:
        return [self.event(seq, EventKind.DELTA, CHUNK % seq, 1) for seq in range(first, last)]

    def done(self, seq: int, **fields: Any) -> Event:
        return self.event(seq, EventKind.DONE, envelope.pack_payload(Outcome(**fields)))

    def failed(self, seq: int, failure: Failure) -> Event:
        return self.event(seq, EventKind.FAILED, envelope.pack_payload(failure))


class DirectMessage(NamedTuple):
    """A ``Run`` or a ``Cancel`` that a gateway sent to a worker itself."""

    message: Any
    body: bytes

    @property
    def received(self) -> ReceivedRequest:
        """The run, as if it had arrived as a ``SubmitRequest``."""
        run = self.message
        message = work.SubmitRequest(run.number, run.attempt, run.model, run.endpoint, run.label)
        return ReceivedRequest(run.gateway, message, self.body)


class FakeWorker:
    """The sockets of a worker, which publish what a test says."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], runtime: Path, boot: str, name: str) -> None:
        self.name = name
        self.endpoint = endpoints.events(runtime, boot, name)
        self.socket = context.socket(zmq.XPUB)
        self.socket.linger = 0
        self.socket.sndhwm = 100_000
        self.socket.bind(self.endpoint)
        self.runs = context.socket(zmq.PULL)
        self.runs.linger = 0
        self.runs.bind(endpoints.runs(runtime, boot, name))
        self.topics: set[bytes] = set()

    def issue_lease(self, gateway: str, lease: int, slots: int, first: tuple[int, int] = (0, 0)) -> None:
        """``first``: number and attempt of the request that uses one of the slots."""
        offer = LeaseTerms(lease, slots, "tiny", "chat/completions", "registered")
        self.publish(gateway, [Event(*first, 0, EventKind.LEASE_ISSUED, 0, envelope.pack_payload(offer))])

    def end_lease(self, gateway: str, lease: int) -> None:
        self.publish(gateway, [Event(0, 0, 0, EventKind.LEASE_ENDED, lease)])

    def next_run(self) -> DirectMessage:
        assert self.runs.poll(int(1000 * DEADLINE)), "nothing came the straight way"
        return DirectMessage(*envelope.decode(self.runs.recv()))

    def close(self) -> None:
        self.socket.close()
        self.runs.close()

    def publish(self, gateway: str, batch: list[Event]) -> None:
        topic = ids.topic(gateway)
        deadline = time.monotonic() + DEADLINE
        while topic not in self.topics:
            assert self.socket.poll(int(1000 * max(0, deadline - time.monotonic()))), "the gateway did not subscribe"
            waiting = self.socket.recv()
            (self.topics.add if waiting[0] == 1 else self.topics.discard)(waiting[1:])
        self.socket.send(topic + self.name.encode() + b"." + events.pack_batch(batch))
