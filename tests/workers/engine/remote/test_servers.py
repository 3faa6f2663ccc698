"""The servers of a remote model, with real sockets: which gets a request, what follows its failure, and what a cancellation leaves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.workers.engine.remote.other_servers import FAILED, OK, REQUEST, TIMEOUT, Client, OtherServers
from workers.engine.remote.addresses import is_literal
from workers.engine.remote.exchange import CONNECT_S
from workers.engine.remote.servers import MIN_DOWN_S, PROBE_S


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
    client = Client(restarts=False)
    others.servers.send(REQUEST, client)
    connection, _ = others.accept(0)
    connection.sendall(OK[:-2])
    others.until(lambda: client.body)
    connection.close()
    others.until(lambda: client.ends)
    assert client.statuses == [200]
    assert "closed the connection" in client.ends[0]
    assert others.unreachable == []


BROKEN = {
    "no HTTP": b"\x00\xff no HTTP\r\n\r\n",
    "half a head": OK[:20],
    "only a head": OK[:-5],
    "half a body": OK[:-2],
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_each_server_is_tried_as_long_as_nothing_was_passed_on(broken: bytes) -> None:
    client = Client()
    with closing(OtherServers(3)) as others:
        others.servers.send(REQUEST, client)
        for number in range(3):
            connection, _ = others.accept(number)
            assert others.servers.servers[number].running == 1
            connection.sendall(broken if number < 2 else OK)
            connection.close()
        others.until(lambda: client.ends)
        assert (client.statuses, client.body, client.ends) == ([200], b"hello", ["ended"])
        assert [each.down_for > 0 for each in others.servers.servers] == [True, True, False]
        assert others.unreachable == []


def test_if_all_answers_break_the_client_gets_one_error_and_the_model_stays(others: OtherServers) -> None:
    client = Client()
    others.servers.send(REQUEST, client)
    for number in (0, 1):
        connection, _ = others.accept(number)
        connection.sendall(OK[:-2])
        connection.close()
    others.until(lambda: client.ends)
    assert (len(client.ends), others.unreachable, len(others.servers.exchanges)) == (1, [], 0)
    assert "closed the connection" in client.ends[0]


@pytest.mark.parametrize(("status", "down"), [(b"404", False), (b"429", True), (b"302", True), (b"500", True)])
def test_an_answer_that_another_server_may_not_give_is_not_passed_on(
    others: OtherServers, status: bytes, down: bool
) -> None:
    client = Client()
    others.servers.send(REQUEST, client)
    for number, answer in ((0, FAILED.replace(b"503", status)), (1, OK)):
        connection, _ = others.accept(number)
        connection.sendall(answer)
    others.until(lambda: client.ends)
    assert (client.statuses, client.body) == ([200], b"hello")
    assert (others.servers.servers[0].down_for > 0) is down


@pytest.mark.parametrize("status", [b"400", b"501", b"508"])
def test_an_answer_that_every_server_would_give_is_passed_on(others: OtherServers, status: bytes) -> None:
    client = Client()
    others.servers.send(REQUEST, client)
    connection, _ = others.accept(0)
    connection.sendall(FAILED.replace(b"503", status))
    others.until(lambda: client.ends)
    assert (client.statuses, others.servers.servers[0].down_for) == ([int(status)], 0)


def test_a_handshake_that_does_not_end_costs_less_than_the_timeout() -> None:
    client = Client()
    with closing(OtherServers(scheme="https")) as others:
        others.servers.send(REQUEST, client)
        for number in (0, 1):
            _, hello = others.accept(number, end=b"\x16\x03")
            assert hello
            assert (client.ends, others.servers.servers[number].running) == ([], 1)
            others.passed += CONNECT_S
        others.until(lambda: others.unreachable)
        assert client.ends == others.unreachable
        assert "no connection within 5 s" in client.ends[0]


def test_a_name_whose_lookup_does_not_end_costs_less_than_the_timeout(others: OtherServers) -> None:
    client = Client()
    first, second = others.servers.servers
    first.found = None
    others.finds_names = False
    others.servers.send(REQUEST, client)
    assert (others.lookups, first.running) == (["127.0.0.1"], 1)
    others.passed += CONNECT_S
    connection, _ = others.accept(1)
    assert (first.running, second.running) == (0, 1)
    connection.sendall(OK)
    others.until(lambda: client.ends)
    assert client.body == b"hello"


def test_a_silent_server_is_left_after_the_timeout_but_not_while_it_takes_the_request(
    others: OtherServers,
) -> None:
    others.servers.send(REQUEST._replace(body=b"x" * 60_000_000), Client())
    slow, _ = others.accept(0)
    first, second = others.servers.servers
    for _ in range(4):
        read = 0

        def read_on() -> bool:
            nonlocal read
            with suppress(BlockingIOError):
                read += len(slow.recv(1_000_000))
            return read > 10_000_000

        others.until(read_on)
        others.passed += TIMEOUT / 2
        others.loop.run_once(0)
        assert (first.running, second.running) == (1, 0)
    assert len(others.progress) >= 2, "the engine does not count as hung"

    def left() -> bool:
        if not second.running:
            others.passed += TIMEOUT  # the first may still have taken something
        return bool(second.running)

    others.until(left)
    assert first.running == 0


def test_a_server_that_never_answers_is_left_after_the_timeout(others: OtherServers) -> None:
    others.servers.send(REQUEST, Client())
    others.accept(0)
    first, second = others.servers.servers
    others.passed += CONNECT_S
    others.loop.run_once(0)
    assert (first.running, second.running) == (1, 0), "it is connected"
    others.passed += TIMEOUT - CONNECT_S
    others.loop.run_once(0)
    assert (first.running, second.running) == (0, 1)


def test_a_server_that_does_not_answer_its_health_request_is_asked_again(others: OtherServers) -> None:
    others.servers.failed(others.servers.servers[0], "it is away")
    others.passed += MIN_DOWN_S
    silent, request = others.accept(0)
    assert request.startswith(b"GET /api/v1/models ")
    others.passed += PROBE_S
    others.until(lambda: closed(silent))
    assert others.servers.servers[0].down_for == 2 * MIN_DOWN_S
    others.passed += 2 * MIN_DOWN_S
    again, _ = others.accept(0)
    again.sendall(OK)
    others.until(lambda: not others.servers.servers[0].down_for)


def closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection that has nothing more to read."""
    try:
        return connection.recv(10) == b""
    except BlockingIOError:
        return False


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
    others.until(lambda: closed(connection))
    assert (client.ends, others.servers.servers[0].running, len(others.servers.exchanges)) == ([], 0, 0)


@pytest.mark.parametrize(
    ("host", "literal"), [("127.0.0.1", True), ("::1", True), ("localhost", False), ("a.b", False)]
)
def test_only_names_are_looked_up(host: str, literal: bool) -> None:
    assert is_literal(host) is literal
