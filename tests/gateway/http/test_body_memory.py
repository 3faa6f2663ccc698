"""The common limit of all request bodies in one gateway process."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import falcon
import gevent
import pytest
from falcon import testing
from gevent.event import Event

from gateway.http.bodies import body_limits
from gateway.http.body_memory import BodyMemory, HeldBody
from gateway.http.request_context import MEMORY_KEY
from protocol.failures import Code, Failure, LemonbusError
from tests.gateway.access.key_files import bearer, key, store
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import DEADLINE
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, PATH, answer_whole, error_of
from tests.gateway.raw_http import parsed, read_until, send

HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n"


def test_bodies_together_have_a_limit_and_one_alone_has_none() -> None:
    memory = BodyMemory(100)
    body, another = HeldBody("a"), HeldBody("a")
    memory.reserve(body, 80)
    memory.reserve(body, 80)
    with pytest.raises(LemonbusError) as caught:
        memory.reserve(another, 1)
    assert (caught.value.failure.http_status, caught.value.failure.retry_after) == (503, 1)
    memory.release(body)
    memory.reserve(another, 500)
    memory.release(another)
    assert memory.used == 0


def test_bodies_of_a_key_have_a_part_of_the_memory_and_one_alone_has_all() -> None:
    memory = BodyMemory(100)
    first, second = HeldBody("key", 0.5), HeldBody("key", 0.5)
    memory.reserve(first, 30)
    memory.reserve(second, 20)
    with pytest.raises(LemonbusError):
        memory.reserve(second, 1)
    memory.release(second)
    memory.reserve(first, 60)
    memory.reserve(HeldBody("another"), 10)


def received(memory: BodyMemory, caller: str, size: int, aborted: list[HeldBody]) -> HeldBody:
    """A body that has partly arrived, up to a size."""
    body = HeldBody(caller)
    memory.begin(body, lambda _failure: aborted.append(body))
    memory.reserve(body, size)
    return body


def test_bodies_that_are_being_received_give_way_to_a_caller_who_holds_less() -> None:
    memory = BodyMemory(100)
    aborted: list[HeldBody] = []
    bodies = [received(memory, "greedy", size, aborted) for size in (20, 30, 30, 20)]
    memory.end(bodies[1])  # all of it is here
    modest = HeldBody("modest")
    memory.reserve(modest, 10)
    assert aborted == [bodies[2]]
    memory.reserve(modest, 30)
    assert aborted == [bodies[2], bodies[0]]
    for more in (HeldBody("greedy"), HeldBody("modest")):
        with pytest.raises(LemonbusError):
            memory.reserve(more, 40)
    with pytest.raises(LemonbusError):
        memory.reserve(bodies[2], 1)
    assert memory.used == 90
    for body in (*bodies, modest):
        memory.release(body)
    assert memory.used == 0


def test_the_oldest_body_of_the_caller_with_most_of_them_gives_way_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    memory = BodyMemory(100)
    aborted: list[HeldBody] = []
    assert not memory.give_up_oldest()
    received(memory, "modest", 5, aborted)
    first, second = (received(memory, "greedy", 0, aborted) for _ in range(2))
    assert not memory.give_up_oldest(), "they have just begun"
    now += 2.0
    assert memory.give_up_oldest()
    assert aborted == [first]
    memory.end(second)
    assert memory.give_up_oldest()
    assert not memory.give_up_oldest()
    assert memory.used == 0


def test_a_wait_that_is_ended_twice_fails_once() -> None:
    """By the second time, its greenlet answers, or serves another request."""
    memory, seen = BodyMemory(100), list[str]()
    failed, answered = Event(), Event()

    class Silent:
        def read(self, _size: int) -> bytes:
            Event().wait(DEADLINE)
            return b""

    def serve() -> None:
        environ = testing.create_environ(headers={"Content-Length": "5"})
        try:
            body_limits.read(falcon.Request({**environ, "wsgi.input": Silent(), MEMORY_KEY: memory}), 100)
        except LemonbusError as problem:
            seen.append(problem.failure.message)
        failed.set()
        seen.append("answered" if answered.wait(DEADLINE) else "late")

    greenlet = gevent.spawn(serve)
    gevent.sleep(0)
    for message in ("first", "second"):
        memory.end_all(Failure(Code.DRAINING, message))
    assert failed.wait(DEADLINE)
    answered.set()
    greenlet.get(timeout=DEADLINE)
    assert seen == ["first", "answered"]
    memory.end_all(Failure(Code.DRAINING, "nothing waits any more"))


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    folder = tmp_path_factory.mktemp("g") / "r"
    with running_gateway(folder, body_limit=1_000_000, body_memory=1_200_000) as harness:
        harness.on_request = lambda received: answer_whole(harness, received)
        yield harness


@pytest.mark.parametrize("framing", [b"Content-Length: 900000", b"Transfer-Encoding: chunked"])
def test_a_body_beyond_the_limit_is_503_until_others_end(harness: GatewayHarness, framing: bytes) -> None:
    prefix = b"%x\r\n" % 900_000 if b"chunked" in framing else b""
    part = HEAD % (PATH.encode(), framing) + prefix + b" " * 700_000
    with harness.connect() as first, harness.connect() as second:
        send(first, part)
        send(second, part)
        readable, _, _ = select.select([first, second], [], [], DEADLINE)
        response = parsed(read_until(readable[0], b"}}"))
        assert (response[0], response[1]["retry-after"], response[1]["connection"]) == (503, "1", "close")
        assert error_of(response)["code"] == "overloaded"
    for _ in range(3):
        wait_for(lambda: harness.post(PATH, {**CHAT, "pad": "x" * 900_000})[0] == 200)


def test_bodies_of_one_key_that_never_end_do_not_keep_out_another_key(tmp_path: Path) -> None:
    store(tmp_path, key("greedy"), key("modest"))
    with running_gateway(
        tmp_path / "r", body_limit=1_000_000, body_memory=1_200_000, state_dir=str(tmp_path)
    ) as harness:
        harness.on_request = lambda received: answer_whole(harness, received)
        authorization = f"Authorization: {bearer('greedy')['Authorization']}".encode()
        part = HEAD % (PATH.encode(), b"Content-Length: 900000\r\n" + authorization) + b" " * 590_000
        with harness.connect() as first, harness.connect() as second:
            for connection in (first, second):
                send(connection, part)
            pad = {**CHAT, "pad": "x" * 300_000}
            deadline = time.monotonic() + DEADLINE
            readable: list[socket.socket] = []
            # The gateway may still be reading what the others sent.
            while not readable:
                assert harness.post(PATH, pad, **bearer("modest"))[0] == 200
                readable, _, _ = select.select([first, second], [], [], 0)
                assert time.monotonic() < deadline
            assert error_of(parsed(read_until(readable[0], b"}}")))["code"] == "overloaded"
