"""The events of attempts on their way to the gateways: batched, in order, bounded, never lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import Code, Failure
from protocol.ids import RequestKey, topic
from protocol.messages.events import Event, EventKind, Outcome, failure_of, unpack_batch
from workers.stream.event_outbox import EventOutbox

A1, A2, B1 = RequestKey("ga", 1, 1), RequestKey("ga", 2, 1), RequestKey("gb", 1, 1)


class FakeGateway:
    """Takes messages, unless its queue is full."""

    def __init__(self) -> None:
        self.full = False
        self.received: dict[tuple[bytes, int], list[Event]] = {}
        self.messages = 0

    def __call__(self, topic_: bytes, batch: bytes) -> bool:
        if self.full:
            return False
        self.messages += 1
        for event in unpack_batch(b"w." + batch, 0)[1]:
            events = self.received.setdefault((topic_, event.number), [])
            assert event.seq == len(events)
            events.append(event)
        return True


def test_one_message_for_each_gateway_and_iteration() -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway)
    for key in (A1, A2, B1):
        outbox.opened(key)
        outbox.delta(key, b"x", 1)
        outbox.delta(key, b"y", 1)
    assert outbox.flush()
    assert gateway.messages == 2
    (event,) = gateway.received[topic("ga"), 1]
    assert (event.data, event.count) == (b"xy", 2)
    outbox.done(A1, Outcome(output_tokens=2))
    assert outbox.flush()
    assert [event.kind for event in gateway.received[topic("ga"), 1]] == [EventKind.DELTA, EventKind.DONE]
    outbox.delta(A1, b"late", 1)
    assert outbox.flush()
    assert gateway.messages == 3


def test_a_slow_reader_is_ended_alone_and_bounded() -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway, max_bytes=100)
    outbox.opened(A1)
    outbox.opened(A2)
    outbox.delta(A2, b"small", 1)
    gateway.full = True
    for _ in range(10):
        outbox.delta(A1, b"x" * 30, 1)
        assert not outbox.flush()
    assert outbox.overflowed == [A1]
    gateway.full = False
    outbox.stalled.clear()
    assert outbox.flush()
    (end,) = gateway.received[topic("ga"), 1]
    assert failure_of(end).code == Code.CLIENT_TOO_SLOW
    assert gateway.received[topic("ga"), 2][0].data == b"small"


def test_a_full_gateway_delays_no_other() -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway)
    for key in (A1, B1):
        outbox.opened(key)
    gateway.full = True
    outbox.delta(A1, b"x", 1)
    assert not outbox.flush()
    gateway.full = False
    outbox.delta(B1, b"y", 1)
    outbox.flush()
    assert list(gateway.received) == [(topic("gb"), 1)]
    outbox.stalled.clear()
    assert outbox.flush()
    assert gateway.received[topic("ga"), 1][0].data == b"x"


def test_one_event_may_be_large() -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway, max_bytes=100)
    outbox.opened(A1)
    for _ in range(2):
        for size in (50, 1000, 50):
            outbox.delta(A1, b"x" * size, 1)
        assert outbox.flush()
    assert outbox.overflowed == []
    for size in (1000, 1000):
        outbox.delta(A1, b"x" * size, 1)
    assert outbox.overflowed == [A1]


def test_nothing_is_published_of_dropped_attempts() -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway)
    for key in (A1, A2, B1):
        outbox.opened(key)
        outbox.alive(key)
    outbox.dropped(A1)
    outbox.gateway_left("gb")
    assert outbox.flush()
    assert list(gateway.received) == [(topic("ga"), 2)]


@given(st.lists(st.sampled_from(["delta", "alive", "flush", "full", "empty"]), max_size=60))
def test_nothing_is_lost_while_a_queue_is_full(history: list[str]) -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway)
    outbox.opened(A1)
    sent = 0
    for step in history:
        if step == "delta":
            outbox.delta(A1, b"%d." % sent, 1)
            sent += 1
        elif step == "alive":
            outbox.alive(A1)
        elif step == "flush":
            outbox.flush()
            outbox.stalled.clear()
        else:
            gateway.full = step == "full"
    gateway.full = False
    outbox.failed(A1, Failure(Code.LOST, "over"))
    assert outbox.flush()
    events = gateway.received[topic("ga"), 1]
    assert b"".join(event.data for event in events[:-1]) == b"".join(b"%d." % number for number in range(sent))
    assert sum(event.count for event in events) == sent
    assert events[-1].kind == EventKind.FAILED
