"""The log over a WebSocket, through a real gateway: subscribing, resuming, mistakes, slow readers and the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import simple_websocket

from protocol.failures import Code, Failure
from protocol.messages import peers
from protocol.messages.calls import CallResult
from protocol.messages.log_stream import FollowLogs, LogBatch, LogEntry, LogSnapshot
from protocol.messages.work import Refused
from protocol.wire import envelope
from tests.gateway.fake_worker import DEADLINE
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.raw_http import read_until
from tests.support.processes import alive
from tests.support.waiting import wait_for

SUBSCRIBE = '{"type": "logs.subscribe", "after_seq": null}'
Connect = Callable[..., simple_websocket.Client]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("server"), api_key="") as harness:
        yield harness


@pytest.fixture
def connect(harness: GatewayHarness) -> Iterator[Connect]:
    opened: list[simple_websocket.Client] = []

    def open_one(query: str = "", **headers: str) -> simple_websocket.Client:
        url = f"ws://127.0.0.1:{harness.port}/logs/stream{query}"
        opened.append(simple_websocket.Client.connect(url, headers=headers or None))
        return opened[-1]

    yield open_one
    for each in opened:
        with contextlib.suppress(simple_websocket.ConnectionClosed, OSError):
            each.close()
        each.thread.join(DEADLINE)


def entry(seq: int, text: str = "said", **fields: Any) -> LogEntry:
    record = {"ts": "2025-03-30T14:22:01.123Z", "level": "info", "process": "worker", "pid": 1, "event": text, **fields}
    return LogEntry(seq, json.dumps(record).encode())


def answer(harness: GatewayHarness, *entries: LogEntry, dropped: int = 0) -> tuple[str, FollowLogs]:
    """Take a subscription and answer it with a snapshot."""
    gateway, call = harness.called(FollowLogs)
    report = envelope.pack_payload(LogSnapshot("boot7", list(entries), dropped, "2025-03-30T14:00:00.000Z"))
    harness.do(lambda: harness.send(gateway, CallResult(call.number), report))
    return gateway, call


def receive_message(client: simple_websocket.Client) -> dict[str, Any]:
    message = client.receive(timeout=DEADLINE)
    assert message is not None, "nothing came"
    reported: dict[str, Any] = json.loads(message)
    return reported


def test_a_snapshot_comes_first_and_then_every_entry(harness: GatewayHarness, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    gateway, call = answer(harness, entry(1), entry(2, dropped=4), dropped=9)
    assert (call.after_seq, call.boot, call.model) == (None, "", "")
    snapshot = receive_message(client)
    assert (snapshot["type"], snapshot["boot"], snapshot["dropped"]) == ("logs.snapshot", "boot7", 9)
    assert snapshot["retained_since"] == "2025-03-30 14:00:00.000"
    assert [each["seq"] for each in snapshot["entries"]] == [1, 2]
    assert snapshot["entries"][0]["line"] == "2025-03-30 14:22:01.123 [Info] (Worker) said"
    assert snapshot["entries"][1]["dropped"] == 4
    harness.do(lambda: harness.send(gateway, LogBatch(call.number, [entry(3), entry(4)], 2)))
    first, second = receive_message(client), receive_message(client)
    assert (first["type"], first["entry"]["seq"], first["entry"]["dropped"]) == ("logs.entry", 3, 2)
    assert (second["entry"]["seq"], second["entry"]["severity"]) == (4, "Info")
    client.close()
    harness.forgotten(call.number)


def test_a_reader_resumes_with_filters_from_address_and_message(harness: GatewayHarness, connect: Connect) -> None:
    client = connect("?model=tiny&level=warning&process=engine")
    client.send('{"type": "logs.subscribe", "after_seq": 1042, "boot": "boot7", "request_id": "r1", "level": "Error"}')
    _, call = answer(harness)
    assert call == FollowLogs(call.number, 1042, "boot7", "tiny", "error", "r1", "engine")
    assert receive_message(client)["entries"] == []


@pytest.mark.parametrize("message", ['{"type": "nonsense"}', "{", '{"type":"logs.subscribe","after_seq":"x"}'])
def test_a_wrong_message_is_answered_and_may_be_put_right(
    harness: GatewayHarness, connect: Connect, message: str
) -> None:
    client = connect(**{"X-Request-ID": "reader-1"})
    client.send(message)
    error = receive_message(client)
    assert error["type"] == "error"
    assert error["message"] == error["error"]["message"]
    assert error["error"]["request_id"] == "reader-1"
    client.send(SUBSCRIBE)
    answer(harness)
    assert receive_message(client)["type"] == "logs.snapshot"


def test_endless_mistakes_end_the_connection(connect: Connect) -> None:
    client = connect()
    for _ in range(10):
        client.send("nonsense")
    for _ in range(10):
        assert receive_message(client)["type"] == "error"
    with pytest.raises(simple_websocket.ConnectionClosed):
        client.receive(timeout=DEADLINE)


def test_a_second_subscription_is_refused_and_the_first_goes_on(harness: GatewayHarness, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    gateway, call = answer(harness)
    assert receive_message(client)["type"] == "logs.snapshot"
    client.send(SUBSCRIBE)
    assert receive_message(client)["type"] == "error"
    harness.do(lambda: harness.send(gateway, LogBatch(call.number, [entry(3)])))
    assert receive_message(client)["entry"]["seq"] == 3


def test_a_refusal_of_the_supervisor_is_sent_to_the_reader(harness: GatewayHarness, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    gateway, call = harness.called(FollowLogs)
    failure = Failure(Code.OVERLOADED, "64 readers already follow the log", retry_after=5)
    harness.do(lambda: harness.send(gateway, Refused(call.number, 0, failure)))
    assert receive_message(client)["error"]["code"] == "overloaded"
    with pytest.raises(simple_websocket.ConnectionClosed):
        client.receive(timeout=DEADLINE)


def test_a_large_snapshot_arrives_whole(harness: GatewayHarness, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    answer(harness, *[entry(seq, "ü" * 300) for seq in range(1, 4001)])
    assert [each["seq"] for each in receive_message(client)["entries"]] == list(range(1, 4001))


def subscribe_plainly(connection: socket.socket) -> None:
    """Shake hands and subscribe, by a client that reads nothing by itself."""
    connection.sendall(
        b"GET /logs/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    read_until(connection, b"\r\n\r\n")
    # An unmasked frame would be refused; this mask is all zeros.
    connection.sendall(b"\x81" + bytes([0x80 | len(SUBSCRIBE)]) + b"\0\0\0\0" + SUBSCRIBE.encode())


def flood(harness: GatewayHarness, gateway: str, call: FollowLogs) -> None:
    """Send 12 MB of entries; return when the gateway has read all of them."""
    batches = [
        LogBatch(call.number, [entry(seq, "x" * 1000) for seq in range(start, start + 100)])
        for start in range(1, 12_001, 100)
    ]

    def send() -> None:
        for batch in batches:
            harness.send(gateway, batch)
        harness.send(gateway, peers.Ping(1))

    harness.do(send)
    harness.called(peers.Pong)


def test_a_slow_reader_has_a_bounded_backlog(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        subscribe_plainly(connection)
        gateway, call = answer(harness)
        flood(harness, gateway, call)
        assert harness.get("/live")[0] == 200
        last = b'"seq":12000,'
        size, tail, dropped = 0, b"", False
        while last not in tail:
            more = connection.recv(1 << 20)
            assert more
            size += len(more)
            tail = tail[-100:] + more
            dropped = dropped or b'"dropped":' in tail
        assert dropped
        assert size < 20_000_000


def test_others_are_answered_while_readers_wait(harness: GatewayHarness, connect: Connect) -> None:
    connect()
    assert harness.get("/live")[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 426),
        ({"Upgrade": "websocket"}, 400),
        ({"Upgrade": "websocket", "Origin": "http://evil.example"}, 403),
    ],
)
def test_an_invalid_handshake_gets_an_error_body(harness: GatewayHarness, headers: dict[str, str], status: int) -> None:
    got, _, body = harness.get("/logs/stream", **headers)
    assert got == status
    assert json.loads(body)["status"] == "error"


@pytest.mark.parametrize("query", ["level=loud", "after_seq=x", "after_seq=-1"])
def test_a_wrong_filter_in_the_address_is_400(harness: GatewayHarness, query: str) -> None:
    got, _, body = harness.get(f"/logs/stream?{query}", Upgrade="websocket")
    assert (got, json.loads(body)["error"]["param"]) == (400, query.partition("=")[0])


def test_the_position_in_the_query_counts_and_unknown_parameters_are_ignored(
    harness: GatewayHarness, connect: Connect
) -> None:
    client = connect("?after_seq=1042&boot=boot7&nonsense=1")
    client.send(SUBSCRIBE)
    _, call = answer(harness)
    assert (call.after_seq, call.boot) == (1042, "boot7")
    assert receive_message(client)["entries"] == []


@pytest.mark.parametrize(
    ("header", "value_text"),
    [("Host: box.lan", "this Host may not read the logs"), ("Origin: http://evil.example", "read")],
)
def test_an_unauthorized_reader_gets_an_error(harness: GatewayHarness, header: str, value_text: str) -> None:
    fields = header + "\r\n" + ("" if header.startswith("Host") else "Host: localhost\r\n")
    got, _, body = harness.raw(f"GET /logs/stream HTTP/1.1\r\n{fields}Connection: close\r\n\r\n".encode())
    message = json.loads(body)["message"]
    assert got == 403
    assert value_text in message
    assert "change" not in message


def test_a_key_is_required_and_readers_are_closed_at_shutdown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_gateway(tmp_path_factory.mktemp("closing"), api_key="k3y") as harness:
        url = f"ws://127.0.0.1:{harness.port}/logs/stream"
        assert harness.get("/logs/stream", Upgrade="websocket")[0] == 401
        following = simple_websocket.Client.connect(url, headers={"Authorization": "Bearer k3y"})
        waiting = simple_websocket.Client.connect(url, headers={"x-api-key": "k3y"})
        following.send(SUBSCRIBE)
        answer(harness)
        assert receive_message(following)["type"] == "logs.snapshot"
        (hello,) = harness.gateways
        harness.do(lambda: harness.send(hello.id, peers.Draining(5.0)))
        for client in (following, waiting):
            assert receive_message(client)["error"]["code"] == "draining"
            with pytest.raises(simple_websocket.ConnectionClosed) as closed:
                client.receive(timeout=DEADLINE)
            assert closed.value.reason == 1001
            client.thread.join(DEADLINE)
        status, _, body = harness.get("/logs/stream", Upgrade="websocket", x_api_key="k3y")
        assert (status, json.loads(body)["error"]["code"]) == (503, "draining")


def test_shutdown_does_not_wait_for_slow_readers(tmp_path: Path) -> None:
    with running_gateway(tmp_path, api_key="") as harness, harness.connect() as connection:
        subscribe_plainly(connection)
        gateway, call = answer(harness)
        flood(harness, gateway, call)
        (hello,) = harness.gateways
        harness.do(lambda: harness.send(gateway, peers.Draining(60.0)))
        os.kill(hello.pid, signal.SIGTERM)
        wait_for(lambda: not alive(hello.pid), "the gateway process has left, long before its grace is over")
