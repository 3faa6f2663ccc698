"""A fake worker, which publishes the events that a test gives it, and a request as it arrives at the supervisor."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

from protocol import ids
from protocol.failures import Failure
from protocol.messages import events, work
from protocol.messages.events import Event, EventKind, Outcome
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
        outcome = Outcome(**{"model": self.message.model or "tiny", **fields})
        return self.event(seq, EventKind.DONE, envelope.pack_payload(outcome))

    def failed(self, seq: int, failure: Failure) -> Event:
        return self.event(seq, EventKind.FAILED, envelope.pack_payload(failure))


class FakeWorker:
    """The sockets of a worker, which publish the events that a test gives them."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], runtime: Path, boot: str, name: str) -> None:
        self.name = name
        self.endpoint = endpoints.events(runtime, boot, name)
        self.socket = context.socket(zmq.XPUB)
        self.socket.linger = 0
        self.socket.sndhwm = 100_000
        self.socket.bind(self.endpoint)
        self.topics: set[bytes] = set()

    def close(self) -> None:
        self.socket.close()

    def publish(self, gateway: str, batch: list[Event]) -> None:
        topic = ids.topic(gateway)
        deadline = time.monotonic() + DEADLINE
        while topic not in self.topics:
            assert self.socket.poll(int(1000 * max(0, deadline - time.monotonic()))), "the gateway did not subscribe"
            self.read_topics()
        self.socket.send(topic + self.name.encode() + b"." + events.pack_batch(batch))

    def read_topics(self) -> set[bytes]:
        """Return the topics to which gateways are subscribed now."""
        while self.socket.poll(0):
            change = self.socket.recv()
            (self.topics.add if change[0] == 1 else self.topics.discard)(change[1:])
        return self.topics
