"""A client's socket under gevent: pairs of sockets whose other end reads, writes, waits and closes."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.socket import wait_read

from gateway.http.connections import client_socket
from gateway.http.connections.client_socket import ClientSocket

DEADLINE = 5.0
LARGE = bytes(range(256)) * 16 * 1024


@pytest.fixture
def socket_pair() -> Iterator[tuple[socket.socket, ClientSocket]]:
    """Two ends of a connection."""
    ours, client = socket.socketpair()
    client.settimeout(DEADLINE)
    with client, gevent.Timeout(DEADLINE):
        connection = ClientSocket(ours.family, ours.type, ours.proto, ours.detach())
        yield client, connection
        connection.close()
        connection.close()


@pytest.fixture
def client(socket_pair: tuple[socket.socket, ClientSocket]) -> socket.socket:
    return socket_pair[0]


@pytest.fixture
def connection(socket_pair: tuple[socket.socket, ClientSocket]) -> ClientSocket:
    return socket_pair[1]


def begun(greenlet: Any) -> None:
    """Let a greenlet run until it waits."""
    gevent.sleep(0)
    gevent.sleep(0)
    assert not greenlet.ready()


@pytest.mark.parametrize("likely", [True, False])
def test_received_bytes_are_read_at_once_and_others_are_waited_for(
    client: socket.socket, connection: ClientSocket, likely: bool
) -> None:
    client.sendall(b"here")
    assert connection.recv(10, likely=likely) == b"here"
    reading = gevent.spawn(connection.recv, 10, likely=likely)
    begun(reading)
    client.sendall(b"later")
    assert reading.get() == b"later"
    client.shutdown(socket.SHUT_WR)
    assert connection.recv(10, likely=likely) == b""


def test_a_client_that_sends_without_a_pause_keeps_nobody_waiting(
    client: socket.socket, connection: ClientSocket
) -> None:
    class AlwaysReadable:
        def __init__(self, raw: Any) -> None:
            self.fileno = raw.fileno
            self.close = raw.close

        def recv(self, size: int) -> bytes:
            return b"x"

    connection.raw = AlwaysReadable(connection.raw)
    others: list[int] = []
    gevent.spawn(lambda: others.append(1))
    reads = 0
    client.send(b"always readable")
    while not others:
        assert connection.recv(1) == b"x"
        reads += 1
        assert reads <= client_socket.READS_BEFORE_YIELD + 1
    connection.set_read_deadline(time.monotonic())
    for _ in range(client_socket.READS_BEFORE_YIELD + 1):
        if not connection.recv(1):
            break
    assert connection.timed_out


def test_a_slow_reader_gets_everything_and_other_greenlets_run(client: socket.socket, connection: ClientSocket) -> None:
    writing = gevent.spawn(connection.sendall, LARGE)
    got = b""
    begun(writing)
    while len(got) < len(LARGE):
        wait_read(client.fileno(), timeout=DEADLINE)
        got += client.recv(64 * 1024)
    assert got == LARGE
    writing.get()
    assert connection.send(b"more") == 4
    assert client.recv(10) == b"more"


def test_one_reads_while_another_writes(client: socket.socket, connection: ClientSocket) -> None:
    writing, reading = gevent.spawn(connection.sendall, LARGE), gevent.spawn(connection.recv, 10)
    begun(writing)
    client.sendall(b"stop")
    assert reading.get() == b"stop"
    begun(writing)
    connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(BrokenPipeError):
        writing.get()


def test_a_client_that_reads_nothing_is_reset(
    client: socket.socket, connection: ClientSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "WRITE_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError):
        connection.sendall(LARGE)


def test_a_client_that_reads_slowly_is_waited_for(
    client: socket.socket, connection: ClientSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "WRITE_TIMEOUT_S", 1.0)
    writing = gevent.spawn(connection.sendall, LARGE)
    got = 0
    slow_until = time.monotonic() + 1.5
    while got < len(LARGE):
        wait_read(client.fileno(), timeout=DEADLINE)
        got += len(client.recv(64 * 1024))
        if time.monotonic() < slow_until:
            gevent.sleep(0.2)
    assert time.monotonic() > slow_until, "longer than it may read nothing"
    writing.get()


def test_what_happened_while_the_process_stood_still_counts_as_in_time(
    client: socket.socket, connection: ClientSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    connection.set_read_deadline(now + client_socket.WRITE_TIMEOUT_S)
    client.sendall(b"here")
    writing, reading = gevent.spawn(connection.sendall, LARGE), gevent.spawn(connection.recv, 10, likely=False)
    gevent.sleep(0)  # both wait, and the loop has not looked at the sockets
    got = len(client.recv(len(LARGE)))
    now += 2 * client_socket.WRITE_TIMEOUT_S
    time.sleep(0.3)  # the timer that looks for late greenlets and the sockets are due together
    while got < len(LARGE):
        wait_read(client.fileno(), timeout=DEADLINE)
        got += len(client.recv(len(LARGE)))
    assert reading.get() == b"here"
    assert not connection.timed_out
    writing.get()


def test_a_hang_up_is_noticed_by_reader_and_writer(client: socket.socket, connection: ClientSocket) -> None:
    writing, reading = gevent.spawn(connection.sendall, LARGE), gevent.spawn(connection.recv, 10)
    begun(writing)
    client.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        writing.get()
    with contextlib.suppress(ConnectionResetError):
        assert reading.get() == b""


def test_a_connection_waits_for_a_request_for_a_limited_time(connection: ClientSocket) -> None:
    idle: dict[ClientSocket, None] = {}
    began = time.monotonic()
    connection.expect_request(0.05, idle)
    assert list(idle) == [connection]
    assert connection.recv(10) == b""
    assert time.monotonic() - began >= 0.05
    assert connection.recv(10, likely=False) == b"", "not a moment longer"
    connection.request_arrived()
    assert not idle


def test_a_released_connection_still_reads_received_bytes(client: socket.socket, connection: ClientSocket) -> None:
    idle: dict[ClientSocket, None] = {}
    connection.expect_request(60.0, idle)
    reading = gevent.spawn(connection.recv, 10)
    begun(reading)
    for one in idle:
        one.stop_expecting()
    assert reading.get() == b""
    client.sendall(b"here")
    assert connection.recv(10) == b"here"
    connection.request_arrived()
    connection.stop_expecting()
    waiting = gevent.spawn(connection.recv, 10)
    begun(waiting)
    client.sendall(b"body")
    assert waiting.get() == b"body", "a request that is here is waited for to its end"


@pytest.mark.parametrize("end", [client_socket.end_oldest_idle, client_socket.end_all_idle])
def test_a_new_connection_is_left_time_to_send_its_first_request(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[dict[ClientSocket, None]], bool | None]
) -> None:
    monkeypatch.setattr(client_socket, "FIRST_REQUEST_S", DEADLINE)
    idle: dict[ClientSocket, None] = {}
    ours, client = socket.socketpair()
    connection = ClientSocket(ours.family, ours.type, ours.proto, ours.detach())
    with client, contextlib.closing(connection), gevent.Timeout(DEADLINE):
        for expected in (b"head", b""):
            connection.expect_request(60.0, idle)
            reading = gevent.spawn(connection.recv, 10)
            begun(reading)
            end(idle)
            gevent.sleep(0.01)  # a connection that is told to end does so in the next iteration
            client.sendall(expected)
            assert reading.get() == expected
            connection.request_arrived()


def test_a_connection_without_a_request_is_not_new_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_socket, "FIRST_REQUEST_S", 0.0)
    idle: dict[ClientSocket, None] = {}
    pairs = [socket.socketpair() for _ in range(2)]
    first, second = [ClientSocket(ours.family, ours.type, ours.proto, ours.detach()) for ours, _ in pairs]
    for each in (first, second):
        each.expect_request(60.0, idle)
    assert client_socket.end_oldest_idle(idle)
    assert list(idle) == [second]
    assert client_socket.end_oldest_idle(idle)
    assert not client_socket.end_oldest_idle(idle)
    for each in (first, second, *(theirs for _, theirs in pairs)):
        each.close()


def test_a_request_that_arrives_while_the_connection_is_released_is_read(
    client: socket.socket, connection: ClientSocket
) -> None:
    idle: dict[ClientSocket, None] = {}
    got: list[bytes] = []

    def serve() -> None:
        connection.expect_request(60.0, idle)
        got.append(connection.recv(10, likely=False))
        connection.request_arrived()
        got.append(connection.recv(10))

    serving = gevent.spawn(serve)
    begun(serving)
    loop = gevent.get_hub().loop
    due = loop.timer(0.01)
    due.start(connection.stop_expecting)

    def both_at_once() -> None:
        client.sendall(b"head")
        time.sleep(0.02)  # a long iteration: afterwards the timer and the socket are due together

    loop.run_callback(both_at_once)
    with gevent.Timeout(DEADLINE):
        while not got:
            gevent.sleep(0.001)
    due.close()
    assert got == [b"head"]
    begun(serving)
    client.sendall(b"body")
    serving.get()
    assert got == [b"head", b"body"]


def test_a_greenlet_that_is_ended_while_it_waits_leaves_the_socket_to_others(
    client: socket.socket, connection: ClientSocket
) -> None:
    reading = gevent.spawn(connection.recv, 10)
    begun(reading)
    reading.kill()
    other = gevent.spawn(connection.recv, 10)
    begun(other)
    client.sendall(b"x")
    assert other.get() == b"x"
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.01):
        connection.recv(10)
    client.sendall(b"y")
    assert connection.recv(10) == b"y"


def test_closing_gives_the_descriptor_back(client: socket.socket, connection: ClientSocket) -> None:
    reading = gevent.spawn(connection.recv, 10)
    begun(reading)
    client.sendall(b"x")
    reading.get()
    connection.close()
    assert connection.fileno() == -1
    assert client.recv(1) == b""
