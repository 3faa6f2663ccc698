"""A client's socket under gevent: real pairs of sockets, whose other end reads, writes, waits and leaves."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from gevent.socket import wait_read

from gateway.http import client_socket
from gateway.http.client_socket import ClientSocket

DEADLINE = 5.0
MUCH = bytes(range(256)) * 16 * 1024


@pytest.fixture
def both() -> Iterator[tuple[socket.socket, ClientSocket]]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(DEADLINE)
    with theirs, gevent.Timeout(DEADLINE):
        peer = ClientSocket(ours.family, ours.type, ours.proto, ours.detach())
        yield theirs, peer
        peer.close()
        peer.close()


@pytest.fixture
def theirs(both: tuple[socket.socket, ClientSocket]) -> socket.socket:
    return both[0]


@pytest.fixture
def peer(both: tuple[socket.socket, ClientSocket]) -> ClientSocket:
    return both[1]


def begun(greenlet: Any) -> None:
    """Let a greenlet run until it waits."""
    gevent.sleep(0)
    gevent.sleep(0)
    assert not greenlet.ready()


@pytest.mark.parametrize("likely", [True, False])
def test_what_is_here_is_read_and_what_is_not_is_waited_for(
    theirs: socket.socket, peer: ClientSocket, likely: bool
) -> None:
    theirs.sendall(b"here")
    assert peer.recv(10, likely=likely) == b"here"
    reading = gevent.spawn(peer.recv, 10, likely=likely)
    begun(reading)
    theirs.sendall(b"later")
    assert reading.get() == b"later"
    theirs.shutdown(socket.SHUT_WR)
    assert peer.recv(10, likely=likely) == b""


def test_a_slow_reader_gets_everything_and_other_greenlets_run(theirs: socket.socket, peer: ClientSocket) -> None:
    writing = gevent.spawn(peer.sendall, MUCH)
    got = b""
    begun(writing)
    while len(got) < len(MUCH):
        wait_read(theirs.fileno(), timeout=DEADLINE)
        got += theirs.recv(64 * 1024)
    assert got == MUCH
    writing.get()
    assert peer.send(b"more") == 4
    assert theirs.recv(10) == b"more"


def test_one_reads_while_another_writes(theirs: socket.socket, peer: ClientSocket) -> None:
    writing, reading = gevent.spawn(peer.sendall, MUCH), gevent.spawn(peer.recv, 10)
    begun(writing)
    theirs.sendall(b"stop")
    assert reading.get() == b"stop"
    begun(writing)
    peer.shutdown(socket.SHUT_RDWR)
    with pytest.raises(BrokenPipeError):
        writing.get()


def test_a_client_that_reads_nothing_is_reset(
    theirs: socket.socket, peer: ClientSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "WRITE_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError):
        peer.sendall(MUCH)


def test_a_client_that_reads_slowly_is_waited_for(
    theirs: socket.socket, peer: ClientSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_socket, "WRITE_TIMEOUT_S", 1.0)
    writing = gevent.spawn(peer.sendall, MUCH)
    got = 0
    began = time.monotonic()
    while got < len(MUCH):
        wait_read(theirs.fileno(), timeout=DEADLINE)
        got += len(theirs.recv(len(MUCH) // 8))
        gevent.sleep(0.2)
    assert time.monotonic() - began > 1.0, "longer than it may read nothing"
    writing.get()


def test_a_hang_up_is_noticed_by_reader_and_writer(theirs: socket.socket, peer: ClientSocket) -> None:
    writing, reading = gevent.spawn(peer.sendall, MUCH), gevent.spawn(peer.recv, 10)
    begun(writing)
    theirs.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        writing.get()
    with contextlib.suppress(ConnectionResetError):
        assert reading.get() == b""


def test_a_request_is_expected_for_so_long(peer: ClientSocket) -> None:
    idle: set[ClientSocket] = set()
    began = time.monotonic()
    peer.expect_request(0.05, idle)
    assert idle == {peer}
    assert peer.recv(10) == b""
    assert time.monotonic() - began >= 0.05
    assert peer.recv(10, likely=False) == b"", "not a moment longer"
    peer.request_arrived()
    assert not idle


def test_a_released_connection_still_reads_received_bytes(theirs: socket.socket, peer: ClientSocket) -> None:
    idle: set[ClientSocket] = set()
    peer.expect_request(60.0, idle)
    reading = gevent.spawn(peer.recv, 10)
    begun(reading)
    for one in idle:
        one.stop_expecting()
    assert reading.get() == b""
    theirs.sendall(b"here")
    assert peer.recv(10) == b"here"
    peer.request_arrived()
    peer.stop_expecting()
    waiting = gevent.spawn(peer.recv, 10)
    begun(waiting)
    theirs.sendall(b"body")
    assert waiting.get() == b"body", "a request that is here is waited for to its end"


def test_a_request_that_arrives_while_the_connection_is_released_is_read(
    theirs: socket.socket, peer: ClientSocket
) -> None:
    idle: set[ClientSocket] = set()
    got: list[bytes] = []

    def serve() -> None:
        peer.expect_request(60.0, idle)
        got.append(peer.recv(10, likely=False))
        peer.request_arrived()
        got.append(peer.recv(10))

    serving = gevent.spawn(serve)
    begun(serving)
    loop = gevent.get_hub().loop
    due = loop.timer(0.01)
    due.start(peer.stop_expecting)

    def both_at_once() -> None:
        theirs.sendall(b"head")
        time.sleep(0.02)  # a long turn: afterwards the timer and the socket are due together

    loop.run_callback(both_at_once)
    with gevent.Timeout(DEADLINE):
        while not got:
            gevent.sleep(0.001)
    due.close()
    assert got == [b"head"]
    begun(serving)
    theirs.sendall(b"body")
    serving.get()
    assert got == [b"head", b"body"]


def test_a_greenlet_that_is_ended_while_it_waits_leaves_the_socket_to_others(
    theirs: socket.socket, peer: ClientSocket
) -> None:
    reading = gevent.spawn(peer.recv, 10)
    begun(reading)
    reading.kill()
    other = gevent.spawn(peer.recv, 10)
    begun(other)
    theirs.sendall(b"x")
    assert other.get() == b"x"
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.01):
        peer.recv(10)
    theirs.sendall(b"y")
    assert peer.recv(10) == b"y"


def test_closing_gives_the_descriptor_back(theirs: socket.socket, peer: ClientSocket) -> None:
    reading = gevent.spawn(peer.recv, 10)
    begun(reading)
    theirs.sendall(b"x")
    reading.get()
    peer.close()
    assert peer.fileno() == -1
    assert theirs.recv(1) == b""
