"""A model's queue is bounded, in requests and in bytes. When it is full, 503 says when to try again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    server = start_module_server(
        "tiny-loop", slots=1, queue_requests=3, queue_bytes=100_000, load=[LOOP], gateway_workers=1
    )
    server.wait_loaded(LOOP)
    return server


def refused(server: LemonbusServer) -> int:
    """How many requests were refused since its start."""
    return int(server.state()["counters"].get("refused_overloaded", 0))


@contextmanager
def busy(server: LemonbusServer) -> Iterator[None]:
    """The only slot is taken during the block, by a request of an engine that is stopped."""
    with processes.stopped(server.engine_pid(LOOP)):
        stream = server.client.start_chat(LOOP, stream=True, max_tokens=8000)
        try:
            wait_for(lambda: server.state()["granted"] == 1, "it has the slot")
            yield
        finally:
            stream.hang_up()


def wait_queued(server: LemonbusServer, count: int) -> None:
    wait_for(lambda: server.state()["queued"] == count, f"{count} wait")


def overloaded(answer: HttpExchange) -> None:
    assert answer.status == 503, answer
    assert answer.error["code"] == "overloaded"
    assert answer.error["type"] == "overloaded"
    assert int(answer.headers["retry-after"]) >= 1


def test_the_queue_is_full_by_requests_and_a_client_that_hangs_up_leaves_it(server: LemonbusServer) -> None:
    before = refused(server)
    with busy(server):
        waiting = [server.client.start_chat(LOOP, max_tokens=3) for _ in range(3)]
        wait_queued(server, 3)
        overloaded(server.client.chat(LOOP, max_tokens=3))
        waiting.pop(1).hang_up()
        wait_queued(server, 2)
        waiting.append(server.client.start_chat(LOOP, max_tokens=3))
        wait_queued(server, 3)
    for request in waiting:
        assert request.finish().status == 200
    assert refused(server) == before + 1


def test_in_bytes(server: LemonbusServer) -> None:
    long = [{"role": "user", "content": "hi"}, {"role": "user", "content": "x" * 60_000}]
    with busy(server):
        first = server.client.start_chat(LOOP, max_tokens=3, messages=long)
        wait_queued(server, 1)
        overloaded(server.client.chat(LOOP, max_tokens=3, messages=long))
        small = server.client.start_chat(LOOP, max_tokens=3)
        wait_queued(server, 2)
    assert first.finish().status == 400, "beyond the context, once it is its turn"
    assert small.finish().status == 200


def test_retry_after_comes_from_measured_service_time(server: LemonbusServer) -> None:
    assert server.client.chat(LOOP, max_tokens=300).status == 200
    with busy(server):
        waiting = [server.client.start_chat(LOOP, max_tokens=3) for _ in range(3)]
        wait_queued(server, 3)
        answer = server.client.chat(LOOP)
        overloaded(answer)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    for request in waiting:
        assert request.finish().status == 200
