"""Audience, desk, watchdog, output lines, memory: the pure parts, by tables and histories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import Code, Failure
from protocol.ids import RequestKey, topic
from protocol.messages.events import Event, EventKind, Outcome, failure_of, unpack_batch
from workers.stream.event_outbox import EventOutbox
from workers.worker.attempt import failure_of_response as failure_of_engine
from workers.worker.load_check import available_memory
from workers.worker.subscriptions import Subscriptions
from workers.worker.watchdog import Verdict, Watchdog

SHORTEN = "shorten it, or load the model with a larger ctx_size"
A1, A2, B1 = RequestKey("ga", 1, 1), RequestKey("ga", 2, 1), RequestKey("gb", 1, 1)


def test_audience() -> None:
    subscriptions = Subscriptions()
    assert not subscriptions.is_subscribed("ga")
    subscriptions.wait(A1, 0.0)
    subscriptions.wait(A2, 1.0)
    subscriptions.wait(B1, 0.5)
    assert subscriptions.overdue(1.9, 2.0) == []
    assert subscriptions.joined(topic("ga")) == [A1, A2]
    assert subscriptions.is_subscribed("ga")
    assert subscriptions.overdue(2.5, 2.0) == [B1]
    assert subscriptions.waiting == []
    subscriptions.left(topic("ga"))
    assert not subscriptions.is_subscribed("ga")
    subscriptions.wait(A1, 9.0)
    subscriptions.forget(A1)
    assert subscriptions.joined(topic("ga")) == []


class FakeGateway:
    """Takes messages, or does not."""

    def __init__(self) -> None:
        self.full = False
        self.received: dict[tuple[bytes, int], list[Event]] = {}
        self.messages = 0

    def __call__(self, to: bytes, batch: bytes) -> bool:
        if self.full:
            return False
        self.messages += 1
        for event in unpack_batch(b"w." + batch, 0)[1]:
            events = self.received.setdefault((to, event.number), [])
            assert event.seq == len(events)
            events.append(event)
        return True


def test_one_message_a_gateway_and_turn() -> None:
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
    outbox = EventOutbox(gateway, most_bytes=100)
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
    outbox = EventOutbox(gateway, most_bytes=100)
    outbox.opened(A1)
    outbox.delta(A1, b"x" * 1000, 1)
    assert outbox.flush()
    assert outbox.overflowed == []


def test_who_is_dropped_is_not_spoken_of() -> None:
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
def test_nothing_is_lost_however_full_it_is(history: list[str]) -> None:
    gateway = FakeGateway()
    outbox = EventOutbox(gateway)
    outbox.opened(A1)
    count_text = 0
    for step in history:
        if step == "delta":
            outbox.delta(A1, b"%d." % count_text, 1)
            count_text += 1
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
    assert b"".join(event.data for event in events[:-1]) == b"".join(b"%d." % number for number in range(count_text))
    assert sum(event.count for event in events) == count_text
    assert events[-1].kind == EventKind.FAILED


F, ABORT, KILL = Verdict.FINE, Verdict.ABORT, Verdict.KILL
# (time, busy, cpu seconds, an event came just before, verdict)
HISTORIES: dict[str, list[tuple[float, bool, float | None, bool, Verdict]]] = {
    "idle is never hung": [(0, False, 1, False, F), (100, False, 1, False, F)],
    "busy and silent": [(0, True, 1, False, F), (9, True, 1, False, F), (10, True, 1, False, ABORT)],
    "then killed": [(0, True, 1, False, F), (10, True, 1, False, ABORT), (10.5, True, 1, False, F), (11, True, 1, False, KILL)],
    "events are progress": [(0, True, 1, False, F), (9, True, 1, True, F), (18, True, 1, False, F), (19, True, 1, False, ABORT)],
    "work is progress": [(0, True, 1, False, F), (9, True, 2, False, F), (18, True, 2, False, F), (19, True, 2, False, ABORT)],
    "a breath is no work": [(0, True, 1, False, F), (5, True, 1.01, False, F), (10, True, 1.02, False, ABORT)],
    "processor time that means nothing": [(0, True, None, False, F), (10, True, None, False, ABORT)],
    "silence begins with the work": [(0, False, 1, False, F), (50, True, 1, False, F), (59, True, 1, False, F), (60, True, 1, False, ABORT)],
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_watchdog(history: list[tuple[float, bool, float | None, bool, Verdict]]) -> None:
    watchdog = Watchdog(10.0)
    for now, busy, cpu, event, verdict in history:
        if event:
            watchdog.progress(now)
        assert watchdog.look(now, busy, cpu) is verdict


@pytest.mark.parametrize(
    ("status", "body", "code", "http", "message"),
    [
        (400, '{"error":{"code":400,"message":"request (40 tokens) exceeds the available context size (32 tokens), try increasing it","type":"exceed_context_size_error"}}', Code.CONTEXT_EXCEEDED, 400, f"the input has 40 tokens, more than the model's context of 32: {SHORTEN}"),
        (500, '{"error":{"code":500,"message":"input (20 tokens) is too large to process. increase the physical batch size (current batch size: 8)"}}', Code.CONTEXT_EXCEEDED, 400, f"the input has 20 tokens, more than the model's context of 8: {SHORTEN}"),
        (500, '{"error":{"code":500,"message":"Cannot use both json_schema and grammar","type":"server_error"}}', Code.INVALID_REQUEST, 400, "Cannot use both json_schema and grammar"),
        (400, '{"error":{"code":400,"message":"Field \'n_probs\': [json.exception.type_error.302] type must be number, but is string"}}', Code.INVALID_REQUEST, 400, "`n_probs`: type must be number, but is string"),
        (400, '{"error":{"code":400,"message":"[json.exception.out_of_range.406] number overflow parsing \'' + "1" * 900 + '\'"}}', Code.INVALID_REQUEST, 400, ("number overflow parsing '" + "1" * 900)[:500] + "…"),
        (400, '{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar"}}', Code.INVALID_REQUEST, 400, "failed to parse grammar"),
        (500, '{"error":{"code":500,"message":"input is too large to process. more","type":"server_error"}}', Code.CONTEXT_EXCEEDED, 400, None),
        (400, '{"error":{"code":400,"message":"bad n","type":"invalid_request_error"}}', Code.INVALID_REQUEST, 400, "bad n"),
        (501, '{"error":{"code":501,"message":"no","type":"not_supported_error"}}', Code.UNSUPPORTED, 501, "no"),
        (500, '{"error":{"code":500,"message":"oh","type":"server_error"}}', Code.BACKEND_ERROR, 500, "llama-server: oh"),
        (500, "<html>", Code.BACKEND_ERROR, 500, None),
        (500, '{"error":{"code":500,"message":"Failed to parse tools: Missing tool type: {}; tools = [\\n {}\\n]"}}', Code.INVALID_REQUEST, 400, "Failed to parse tools: Missing tool type: {}"),
        (500, '{"error":{"code":500,"message":"Failed to parse messages: Missing tool call type: 5"}}', Code.INVALID_REQUEST, 400, None),
        (500, '{"error":{"code":500,"message":"Unknown reasoning format: zz","type":"server_error"}}', Code.INVALID_REQUEST, 400, None),
        (500, '{"error":{"code":500,"message":"Jinja Exception: roles must alternate","type":"server_error"}}', Code.INVALID_REQUEST, 400, None),
        (400, '{"error":{"code":400,"message":"cannot open /home/me/models/x.gguf here"}}', Code.INVALID_REQUEST, 400, "cannot open … here"),
        (400, '{"error":{"code":400,"message":"and/or is fine"}}', Code.INVALID_REQUEST, 400, "and/or is fine"),
        (500, '{"error":"Failed to load x model!"}', Code.BACKEND_ERROR, 500, "llama-server: Failed to load x model!"),
        (500, '{"error":"Max length reached"}', Code.CONTEXT_EXCEEDED, 400, None),
        (400, '{"error":{"code":400,"message":"Max length reached!","type":"model_error"}}', Code.CONTEXT_EXCEEDED, 400, None),
        (503, '{"error":"NPU is in use and request queue is full (limit: 10)."}', Code.OVERLOADED, 503, None),
    ],
)  # fmt: skip
def test_the_engines_errors(status: int, body: str, code: Code, http: int, message: Any) -> None:
    failure = failure_of_engine(status, body.encode(), "llama-server")
    assert (failure.code, failure.http_status) == (code, http)
    assert message is None or failure.message == message


@pytest.mark.parametrize("body", [b"", b"\xff", b'{"error":{"message":"\xff"}}', b'{"error":' + b"[" * 100_000])
def test_an_error_that_cannot_be_read_is_still_one(body: bytes) -> None:
    failure = failure_of_engine(500, body, "llama-server")
    assert (failure.code, failure.message) == (
        Code.BACKEND_ERROR,
        "llama-server: llama-server answered with status 500",
    )


def test_memory() -> None:
    assert available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 * 1024 * 1024
    assert available_memory("") == 0
