"""A pull as a stream of events, through a real gateway: its progress, its end, and a client that does not wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol import wire
from protocol.admin import Answer
from protocol.admin import Progress as Downloaded
from protocol.shelf import Pulled, PullModel
from tests.gateway.rawhttp import read_until, request
from tests.gateway.standin import StandIn, standing


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with standing(tmp_path_factory.mktemp("house"), api_key="") as standin:
        yield standin


def test_a_streamed_pull_tells_and_a_hang_up_is_passed_on(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("POST", "/v1/pull", {"model_name": "m", "stream": True}))
        gateway, call = house.called(PullModel)
        assert call.progress
        house.do(lambda: house.send(gateway, Downloaded(call.number, "m", "f.gguf", 1, 1, 5, 10)))
        assert b'"percent":50}' in read_until(connection, b"}\n\n")
    house.forgotten(call.number)


def test_a_streamed_pull_ends_with_complete(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("POST", "/v1/pull", {"model_name": "m", "stream": True}))
        gateway, call = house.called(PullModel)
        house.do(lambda: house.send(gateway, Answer(call.number), wire.pack(Pulled("m", 1))))
        data = read_until(connection, b"0\r\n\r\n")
    assert b"text/event-stream" in data
    assert b'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n' in data
