"""The servers of a remote model, with real sockets: which gets a request, what follows its failure, and what a cancellation leaves."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from protocol.config.server_address import parse_address
from protocol.runtime.loop import Loop
from tests.support.waiting import DEADLINE
from workers.backends.engine_request import EngineRequest
from workers.engine.remote.addresses import Found, find_address, is_literal
from workers.engine.remote.servers import RemoteServers

TIMEOUT = 60.0
REQUEST = EngineRequest("POST", "/v1/chat/completions", b"{}")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FAILED = b"HTTP/1.1 503 no\r\nContent-Length: 0\r\n\r\n"


class Client:
    """Records a response."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.body = b""
        self.ends: list[str] = []

    def began(self, status: int) -> None:
        self.statuses.append(status)

    def data(self, piece: bytes) -> None:
        self.body += piece

    def trailer(self, name: bytes, value: bytes) -> None:
        raise AssertionError((name, value))

    def ended(self, until_close: bool = False) -> None:
        assert not until_close
        self.ends.append("ended")

    def broke(self, reason: str) -> None:
        self.ends.append(reason)

    def malformed(self, reason: str) -> None:
        raise AssertionError(reason)

    def crashed(self, error: BaseException) -> None:
        raise error


def bound() -> socket.socket:
    opened = socket.socket()
    opened.bind(("127.0.0.1", 0))
    return opened


class OtherServers:
    """Two sockets, which listen or not, a third one that never listens, and the object under test.

    A socket that is bound and does not listen refuses connections, and keeps its port from other programs.
    """

    def __init__(self, *, dead_first: bool = False, listening: bool = True) -> None:
        self.loop = Loop()
        self.listeners = [bound(), bound()]
        self.dead = bound()
        for listener in self.listeners if listening else ():
            listener.listen()
        used = [self.dead, *self.listeners] if dead_first else self.listeners
        urls = [f"http://127.0.0.1:{each.getsockname()[1]}/api/v1" for each in used]
        self.accepted: list[socket.socket] = []
        self.unreachable: list[str] = []
        self.lookups: list[str] = []
        self.servers = RemoteServers(
            self.loop,
            [parse_address(url) for url in urls],
            health=lambda: EngineRequest("GET", "/v1/models"),
            is_healthy=lambda status: status == 200,
            timeout=TIMEOUT,
            max_kept=2,
            key="the-key",
            look_up=self.look_up,
            on_unreachable=self.unreachable.append,
        )

    def close(self) -> None:
        self.servers.close()
        for each in (*self.listeners, self.dead, *self.accepted):
            each.close()
        self.loop.close()

    def look_up(self, host: str, port: int, then: Callable[[Found | None, str], None]) -> None:
        self.lookups.append(host)
        self.loop.call_later(0.0, lambda: then(find_address(host, port), ""))

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            self.loop.run_once(0.01)

    def accept(self, number: int) -> tuple[socket.socket, bytes]:
        """Accept a connection of a server; return it with the request."""
        self.listeners[number].setblocking(False)
        found: list[socket.socket] = []

        def accepted() -> bool:
            try:
                found.append(self.listeners[number].accept()[0])
            except BlockingIOError:
                return False
            return True

        self.until(accepted)
        self.accepted += found
        found[0].setblocking(False)
        got = b""

        def read() -> bool:
            nonlocal got
            try:
                got += found[0].recv(65536)
            except BlockingIOError:
                return False
            return b"\r\n\r\n" in got

        self.until(read)
        return found[0], got


@pytest.fixture
def others() -> Iterator[OtherServers]:
    made = OtherServers()
    yield made
    made.close()


def test_the_least_busy_server_gets_a_request_under_its_own_path_and_with_its_key(others: OtherServers) -> None:
    clients = [Client() for _ in range(3)]
    others.servers.send(REQUEST, clients[0])
    others.servers.send(REQUEST, clients[1])
    first, request = others.accept(0)
    second, _ = others.accept(1)
    assert request.startswith(b"POST /api/v1/chat/completions HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer the-key\r\n" in request
    assert b"\r\nHost: 127.0.0.1:" in request
    second.sendall(OK)
    others.until(lambda: clients[1].ends)
    others.servers.send(REQUEST, clients[2])
    assert [each.running for each in others.servers.servers] == [1, 1]
    first.sendall(OK)
    second.sendall(OK)
    others.until(lambda: clients[0].ends and clients[2].ends)
    assert [client.body for client in clients] == [b"hello"] * 3
    assert [each.running for each in others.servers.servers] == [0, 0]


def test_a_server_that_fails_before_its_answer_is_followed_by_the_next_and_asked_for_its_health(
    others: OtherServers,
) -> None:
    client = Client()
    others.servers.send(REQUEST, client)
    first, _ = others.accept(0)
    first.sendall(FAILED)
    second, _ = others.accept(1)
    second.sendall(OK)
    others.until(lambda: client.ends)
    assert (client.statuses, client.body, client.ends) == ([200], b"hello", ["ended"])
    assert others.servers.servers[0].down_for > 0
    probe, request = others.accept(0)
    assert request.startswith(b"GET /api/v1/models ")
    probe.sendall(OK)
    others.until(lambda: others.servers.servers[0].down_for == 0)
    others.servers.send(REQUEST, Client())
    assert [each.running for each in others.servers.servers] == [0, 1], "one that has not failed is preferred"


def test_the_last_servers_own_answer_is_passed_on(others: OtherServers) -> None:
    client = Client()
    others.servers.send(REQUEST, client)
    for number in (0, 1):
        connection, _ = others.accept(number)
        connection.sendall(FAILED)
        connection.close()
    others.until(lambda: client.ends)
    assert (client.statuses, client.ends, others.unreachable) == ([503], ["ended"], [])


def test_a_break_after_the_answer_has_begun_is_the_end(others: OtherServers) -> None:
    client = Client()
    others.servers.send(REQUEST, client)
    connection, _ = others.accept(0)
    connection.sendall(OK[:-2])
    others.until(lambda: client.body)
    connection.close()
    others.until(lambda: client.ends)
    assert client.statuses == [200]
    assert "closed the connection" in client.ends[0]
    assert others.unreachable == []


def test_a_dead_server_is_passed_over() -> None:
    client = Client()
    with closing(OtherServers(dead_first=True)) as others:
        others.servers.send(REQUEST, client)
        connection, _ = others.accept(0)
        connection.sendall(OK)
        others.until(lambda: client.ends)
        assert (client.body, others.unreachable) == (b"hello", [])


def test_when_none_can_be_reached_the_owner_is_told_why() -> None:
    client = Client()
    with closing(OtherServers(listening=False)) as others:
        others.servers.send(REQUEST, client)
        others.until(lambda: others.unreachable)
        assert "refused" in client.ends[0]
        assert others.unreachable == client.ends


def test_a_cancelled_request_is_closed_and_nothing_of_it_is_left(others: OtherServers) -> None:
    client = Client()
    exchange = others.servers.send(REQUEST, client)
    connection, _ = others.accept(0)
    exchange.cancel()

    def closed() -> bool:
        try:
            return connection.recv(10) == b""
        except BlockingIOError:
            return False

    others.until(closed)
    assert (client.ends, others.servers.servers[0].running, len(others.servers.exchanges)) == ([], 0, 0)


@pytest.mark.parametrize(
    ("host", "literal"), [("127.0.0.1", True), ("::1", True), ("localhost", False), ("a.b", False)]
)
def test_only_names_are_looked_up(host: str, literal: bool) -> None:
    assert is_literal(host) is literal
