"""The common limit of all request bodies in one gateway process."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from gateway.http.bodies.body_memory import BodyMemory
from protocol.failures import LemonbusError
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import DEADLINE
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, PATH, answer_whole, error_of
from tests.gateway.raw_http import parsed, read_until

HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n"


def test_bodies_together_have_a_limit_and_one_alone_has_none() -> None:
    memory = BodyMemory(100)
    memory.reserve(80, 0)
    memory.reserve(80, 80)
    with pytest.raises(LemonbusError) as caught:
        memory.reserve(1, 0)
    assert (caught.value.failure.http_status, caught.value.failure.retry_after) == (503, 1)
    memory.release(160)
    memory.reserve(500, 0)
    memory.release(500)
    assert memory.used == 0


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
        first.sendall(part)
        second.sendall(part)
        readable, _, _ = select.select([first, second], [], [], DEADLINE)
        response = parsed(read_until(readable[0], b"}}"))
        assert (response[0], response[1]["retry-after"], response[1]["connection"]) == (503, "1", "close")
        assert error_of(response)["code"] == "overloaded"
    for _ in range(3):
        wait_for(lambda: harness.post(PATH, {**CHAT, "pad": "x" * 900_000})[0] == 200)
