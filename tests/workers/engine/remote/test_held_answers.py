"""A server whose answer is not read, because a client reads slowly: that is not its silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.workers.engine.remote.other_servers import OK, REQUEST, TIMEOUT, Client, OtherServers


@pytest.fixture
def others() -> Iterator[OtherServers]:
    with closing(OtherServers(1)) as made:
        yield made


def test_a_server_that_is_not_read_is_not_silent(others: OtherServers) -> None:
    client = Client()
    exchange = others.servers.send(REQUEST, client)
    connection, _ = others.accept(0)
    connection.sendall(OK[:-2])
    others.until(lambda: client.body)
    exchange.hold(on=True)
    connection.sendall(OK[-2:])
    others.passed += 2 * TIMEOUT
    others.loop.run_once(0)
    assert (client.body, client.ends) == (b"hel", [])
    exchange.hold(on=False)
    others.until(lambda: client.ends)
    assert (client.body, client.ends) == (b"hello", ["ended"])


def test_after_a_hold_silence_counts_again(others: OtherServers) -> None:
    client = Client()
    exchange = others.servers.send(REQUEST, client)
    connection, _ = others.accept(0)
    connection.sendall(OK[:-2])
    others.until(lambda: client.body)
    exchange.hold(on=True)
    exchange.hold(on=False)
    others.passed += TIMEOUT
    others.until(lambda: client.ends)
    assert "nothing came" in client.ends[0]
