"""A second server on the same place says one clear line; stale places are taken over; ids are labels."""

from __future__ import annotations

import pytest

from tests.conftest import OpenHouse
from tests.house.models import STORY, TALE
from tests.house.server import Server
from tests.house.waiting import wait_for

CHAT, TALES, LOOP = "extra.tiny-chat", "extra.tiny-tale", "extra.tiny-loop"


@pytest.fixture(scope="module")
def first(open_shared: OpenHouse) -> Server:
    return open_shared("tiny-chat")


def says_one_line(second: Server) -> str:
    try:
        assert second.wait_exit() == 1
        assert not second.process_tree() or second.runtime.exists()
        assert len(second.unread) == 1, second.unread
        return second.unread[0]
    finally:
        second.clean()


def test_a_second_server_on_the_runtime_directory(first: Server) -> None:
    line = says_one_line(Server("tiny-chat", wait=False, runtime=first.runtime))
    assert f"pid {first.pid}" in line
    assert str(first.runtime) in line
    assert first.client.chat(CHAT).text == STORY, "the first is unharmed"


def test_a_second_server_on_the_port(first: Server) -> None:
    line = says_one_line(Server("tiny-chat", wait=False, port=first.port))
    assert str(first.port) in line
    assert first.client.chat(CHAT).text == STORY, "the first is unharmed"


def test_a_stale_runtime_directory(open_house: OpenHouse) -> None:
    first = open_house("tiny-chat", load=[CHAT])
    first.wait_loaded(CHAT)
    first.kill_supervisor()
    wait_for(lambda: not first.process_tree(), "all have left")
    assert any(first.runtime.iterdir()), "it left something behind"
    second = open_house("tiny-chat", runtime=first.runtime)
    assert second.client.chat(CHAT).text == STORY


def test_a_server_started_within_the_grace_of_a_dead_one(open_house: OpenHouse) -> None:
    first = open_house("tiny-loop", load=[LOOP])
    stream = first.client.start_chat(LOOP, stream=True, max_tokens=1500)
    stream.until(lambda it: len(it.events) > 2)
    first.kill_supervisor()
    second = open_house("tiny-chat", runtime=first.runtime, port=first.port)
    assert second.client.chat(CHAT).text == STORY
    assert stream.finish().done, "the old stream ends whole beside it"


def test_two_live_requests_with_one_id(house: Server) -> None:
    server = house
    same = {"X-Request-ID": "twin"}
    long = server.client.start_chat(LOOP, same, stream=True, max_tokens=1000)
    long.until(lambda it: len(it.events) > 2)
    chat, tale = server.client.start_chat(CHAT, same), server.client.start_chat(TALES, same)
    assert chat.finish().text == STORY
    assert tale.finish().text == TALE
    assert long.finish().done
    assert {it.headers["x-request-id"] for it in (long, chat, tale)} == {"twin"}
