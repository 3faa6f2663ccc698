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

from protocol import staff, wire
from protocol.admin import Answer, FollowLogs, LogBatch, LogEntry, LogSnapshot
from protocol.failures import Code, Failure
from protocol.work import Refused
from tests.gateway.rawhttp import read_until
from tests.gateway.standin import StandIn, standing
from tests.gateway.standworker import DEADLINE
from tests.house.processes import alive
from tests.house.waiting import wait_for

SUBSCRIBE = '{"type": "logs.subscribe", "after_seq": null}'
Connect = Callable[..., simple_websocket.Client]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with standing(tmp_path_factory.mktemp("house"), api_key="") as standin:
        yield standin


@pytest.fixture
def connect(house: StandIn) -> Iterator[Connect]:
    opened: list[simple_websocket.Client] = []

    def open_one(query: str = "", **headers: str) -> simple_websocket.Client:
        url = f"ws://127.0.0.1:{house.port}/logs/stream{query}"
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


def answer(house: StandIn, *entries: LogEntry, dropped: int = 0) -> tuple[str, FollowLogs]:
    """Take a subscription and answer it with a snapshot."""
    gateway, call = house.called(FollowLogs)
    report = wire.pack(LogSnapshot("boot7", list(entries), dropped))
    house.do(lambda: house.send(gateway, Answer(call.number), report))
    return gateway, call


def heard(client: simple_websocket.Client) -> dict[str, Any]:
    message = client.receive(timeout=DEADLINE)
    assert message is not None, "nothing came"
    told: dict[str, Any] = json.loads(message)
    return told


def test_a_snapshot_comes_first_and_then_every_entry(house: StandIn, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    gateway, call = answer(house, entry(1), entry(2, dropped=4), dropped=9)
    assert (call.after_seq, call.boot, call.model) == (None, "", "")
    snapshot = heard(client)
    assert (snapshot["type"], snapshot["boot"], snapshot["dropped"]) == ("logs.snapshot", "boot7", 9)
    assert [each["seq"] for each in snapshot["entries"]] == [1, 2]
    assert snapshot["entries"][0]["line"] == "2025-03-30 14:22:01.123 [Info] (Worker) said"
    assert snapshot["entries"][1]["dropped"] == 4
    house.do(lambda: house.send(gateway, LogBatch(call.number, [entry(3), entry(4)], 2)))
    first, second = heard(client), heard(client)
    assert (first["type"], first["entry"]["seq"], first["entry"]["dropped"]) == ("logs.entry", 3, 2)
    assert (second["entry"]["seq"], second["entry"]["severity"]) == (4, "Info")
    client.close()
    house.forgotten(call.number)


def test_a_reader_resumes_with_filters_from_address_and_message(house: StandIn, connect: Connect) -> None:
    client = connect("?model=tiny&level=warning&process=engine")
    client.send('{"type": "logs.subscribe", "after_seq": 1042, "boot": "boot7", "request_id": "r1", "level": "Error"}')
    _, call = answer(house)
    assert call == FollowLogs(call.number, 1042, "boot7", "tiny", "error", "r1", "engine")
    assert heard(client)["entries"] == []


@pytest.mark.parametrize("message", ['{"type": "nonsense"}', "{", '{"type":"logs.subscribe","after_seq":"x"}'])
def test_a_wrong_message_is_answered_and_may_be_put_right(house: StandIn, connect: Connect, message: str) -> None:
    client = connect(**{"X-Request-ID": "reader-1"})
    client.send(message)
    error = heard(client)
    assert error["type"] == "error"
    assert error["message"] == error["error"]["message"]
    assert error["error"]["request_id"] == "reader-1"
    client.send(SUBSCRIBE)
    answer(house)
    assert heard(client)["type"] == "logs.snapshot"


def test_endless_mistakes_end_the_connection(connect: Connect) -> None:
    client = connect()
    for _ in range(10):
        client.send("nonsense")
    for _ in range(10):
        assert heard(client)["type"] == "error"
    with pytest.raises(simple_websocket.ConnectionClosed):
        client.receive(timeout=DEADLINE)


def test_a_second_subscription_is_refused_and_the_first_goes_on(house: StandIn, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    gateway, call = answer(house)
    assert heard(client)["type"] == "logs.snapshot"
    client.send(SUBSCRIBE)
    assert heard(client)["type"] == "error"
    house.do(lambda: house.send(gateway, LogBatch(call.number, [entry(3)])))
    assert heard(client)["entry"]["seq"] == 3


def test_what_the_supervisor_refuses_is_told(house: StandIn, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    gateway, call = house.called(FollowLogs)
    failure = Failure(Code.OVERLOADED, "64 readers already follow the log", retry_after=5)
    house.do(lambda: house.send(gateway, Refused(call.number, 0, failure)))
    assert heard(client)["error"]["code"] == "overloaded"
    with pytest.raises(simple_websocket.ConnectionClosed):
        client.receive(timeout=DEADLINE)


def test_a_large_snapshot_arrives_whole(house: StandIn, connect: Connect) -> None:
    client = connect()
    client.send(SUBSCRIBE)
    answer(house, *[entry(seq, "ü" * 300) for seq in range(1, 4001)])
    assert [each["seq"] for each in heard(client)["entries"]] == list(range(1, 4001))


def subscribe_plainly(connection: socket.socket) -> None:
    """Shake hands and subscribe, by a client that reads nothing by itself."""
    connection.sendall(
        b"GET /logs/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    read_until(connection, b"\r\n\r\n")
    # An unmasked frame would be refused; this mask is all zeros.
    connection.sendall(b"\x81" + bytes([0x80 | len(SUBSCRIBE)]) + b"\0\0\0\0" + SUBSCRIBE.encode())


def flood(house: StandIn, gateway: str, call: FollowLogs) -> None:
    """Send 12 MB of entries; return when the gateway has taken in all of them."""
    batches = [
        LogBatch(call.number, [entry(seq, "x" * 1000) for seq in range(start, start + 100)])
        for start in range(1, 12_001, 100)
    ]

    def send() -> None:
        for batch in batches:
            house.send(gateway, batch)
        house.send(gateway, staff.Ping(1))

    house.do(send)
    assert house.others.get(timeout=DEADLINE) == (gateway, staff.Pong(1))


def test_a_reader_who_does_not_read_costs_a_bounded_backlog(house: StandIn) -> None:
    with house.connect() as connection:
        subscribe_plainly(connection)
        gateway, call = answer(house)
        flood(house, gateway, call)
        assert house.get("/live")[0] == 200
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


def test_others_are_answered_while_readers_wait(house: StandIn, connect: Connect) -> None:
    connect()
    assert house.get("/live")[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 426),
        ({"Upgrade": "websocket"}, 400),
        ({"Upgrade": "websocket", "Origin": "http://evil.example"}, 403),
    ],
)
def test_what_is_no_handshake_of_ours_gets_an_error_body(house: StandIn, headers: dict[str, str], status: int) -> None:
    got, _, body = house.get("/logs/stream", **headers)
    assert got == status
    assert json.loads(body)["status"] == "error"


@pytest.mark.parametrize("query", ["level=loud", "after_seq=x", "after_seq=-1"])
def test_a_wrong_filter_in_the_address_is_400(house: StandIn, query: str) -> None:
    got, _, body = house.get(f"/logs/stream?{query}", Upgrade="websocket")
    assert (got, json.loads(body)["error"]["param"]) == (400, query.partition("=")[0])


def test_what_the_address_says_of_the_place_counts_and_what_it_says_besides_is_passed_over(
    house: StandIn, connect: Connect
) -> None:
    client = connect("?after_seq=1042&boot=boot7&nonsense=1")
    client.send(SUBSCRIBE)
    _, call = answer(house)
    assert (call.after_seq, call.boot) == (1042, "boot7")
    assert heard(client)["entries"] == []


@pytest.mark.parametrize(
    ("header", "says"), [("Host: box.lan", "this Host may not read the logs"), ("Origin: http://evil.example", "read")]
)
def test_who_may_not_read_is_told_so(house: StandIn, header: str, says: str) -> None:
    fields = header + "\r\n" + ("" if header.startswith("Host") else "Host: localhost\r\n")
    got, _, body = house.raw(f"GET /logs/stream HTTP/1.1\r\n{fields}Connection: close\r\n\r\n".encode())
    message = json.loads(body)["message"]
    assert got == 403
    assert says in message
    assert "change" not in message


def test_a_key_is_wanted_and_readers_are_sent_away_when_the_house_closes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with standing(tmp_path_factory.mktemp("closing"), api_key="k3y") as house:
        url = f"ws://127.0.0.1:{house.port}/logs/stream"
        assert house.get("/logs/stream", Upgrade="websocket")[0] == 401
        following = simple_websocket.Client.connect(url, headers={"Authorization": "Bearer k3y"})
        waiting = simple_websocket.Client.connect(url, headers={"x-api-key": "k3y"})
        following.send(SUBSCRIBE)
        answer(house)
        assert heard(following)["type"] == "logs.snapshot"
        (hello,) = house.gateways
        house.do(lambda: house.send(hello.id, staff.Draining(5.0)))
        for client in (following, waiting):
            assert heard(client)["error"]["code"] == "draining"
            with pytest.raises(simple_websocket.ConnectionClosed) as closed:
                client.receive(timeout=DEADLINE)
            assert closed.value.reason == 1001
            client.thread.join(DEADLINE)


def test_the_end_waits_for_no_reader_who_does_not_read(tmp_path: Path) -> None:
    with standing(tmp_path, api_key="") as house, house.connect() as connection:
        subscribe_plainly(connection)
        gateway, call = answer(house)
        flood(house, gateway, call)
        (hello,) = house.gateways
        house.do(lambda: house.send(gateway, staff.Draining(60.0)))
        os.kill(hello.pid, signal.SIGTERM)
        wait_for(lambda: not alive(hello.pid), "the gateway process has left, long before its grace is over")
