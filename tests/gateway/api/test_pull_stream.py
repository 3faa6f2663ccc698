"""A pull as a stream of events, through a real gateway: its progress, its end, and a client that does not wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.messages.calls import CallResult
from protocol.messages.calls import Progress as Downloaded
from protocol.messages.model_files import Pulled, PullModel
from protocol.wire import envelope
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.raw_http import read_until, request


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("server"), api_key="") as harness:
        yield harness


def test_a_streamed_pull_tells_and_a_hang_up_is_passed_on(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(request("POST", "/v1/pull", {"model_name": "m", "stream": True}))
        gateway, call = harness.called(PullModel)
        assert call.progress
        harness.do(lambda: harness.send(gateway, Downloaded(call.number, "m", "f.gguf", 1, 1, 5, 10)))
        assert b'"percent":50}' in read_until(connection, b"}\n\n")
    harness.forgotten(call.number)


def test_a_streamed_pull_ends_with_complete(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(request("POST", "/v1/pull", {"model_name": "m", "stream": True}))
        gateway, call = harness.called(PullModel)
        harness.do(lambda: harness.send(gateway, CallResult(call.number), envelope.pack_payload(Pulled("m", 1))))
        data = read_until(connection, b"0\r\n\r\n")
    assert b"text/event-stream" in data
    assert b'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n' in data
