"""SIGKILL before the first token, and right after the last one: every client gets a whole answer, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import OpenHouse
from tests.engines.engine import ANSWER, program
from tests.house import processes
from tests.house.client import together
from tests.house.exchange import Exchange
from tests.house.models import STORY, prompt_of
from tests.house.server import Server
from tests.house.waiting import wait_for

CHAT, SLOW = "extra.tiny-chat", "extra.tiny-slow"
TOKENS = 20
"""As many as the story has."""


@pytest.fixture(scope="module")
def slow(open_shared: OpenHouse) -> Server:
    return open_shared("tiny-slow", load=[SLOW], breaker_deaths=50)  # the breaker has a test of its own


@pytest.fixture(scope="module")
def quick(open_shared: OpenHouse) -> Server:
    return open_shared("tiny-chat")


def victim(server: Server, kind: str, model: str) -> int:
    return server.engine_pid(model) if kind == "engine" else server.worker_pid(model)


def in_prefill(server: Server, stream: bool) -> Exchange:
    """Return a request that is in the engine, long before its first token."""
    body = {"model": SLOW, "prompt": prompt_of(1000), "max_tokens": TOKENS, "temperature": 0, "stream": stream}
    request = server.client.start("POST", "/v1/completions", body)
    wait_for(lambda: server.busy_slots(SLOW) == 1, "the request is in the engine")
    return request


@pytest.mark.parametrize("kind", ["engine", "worker"])
def test_eight_deaths_in_a_row_before_the_first_token(slow: Server, kind: str) -> None:
    server = slow
    for turn in range(8):
        server.wait_loaded(SLOW)
        request = in_prefill(server, stream=turn % 2 == 0)
        processes.kill(victim(server, kind, SLOW))
        request.finish(20)
        assert request.status == 200, request
        assert request.complete
        assert request.text == STORY, "whole, and once"
        assert request.done == (turn % 2 == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_done_counts_although_the_worker_is_dead_when_it_is_read(quick: Server, stream: bool) -> None:
    server = quick
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    body = {"model": CHAT, "prompt": prompt_of(4000), "max_tokens": 200, "temperature": 0, "stream": stream}
    request = server.client.start("POST", "/v1/completions", body)
    gateway = server.gateway_of(request)
    wait_for(lambda: server.busy_slots(CHAT) == 1, "it is in the engine")
    with processes.stopped(gateway):
        wait_for(lambda: server.state()["granted"] == 0, "it is done, and the other gateway hears so")
        worker = server.worker_pid(CHAT)
        processes.kill(worker)
        wait_for(lambda: not processes.alive(worker), "the worker is dead")
    request.finish(10)
    assert request.complete
    assert request.text == STORY
    assert request.done == stream


def test_a_request_that_kills_its_engine_twice_fails_alone(open_house: OpenHouse, tmp_path: Path) -> None:
    server = open_house(
        "tiny-chat", llamacpp_backend="system", llama_server=program(tmp_path, "poison"), slots=4, load=[CHAT]
    )
    server.wait_loaded(CHAT)

    def ask(index: int) -> Exchange:
        said = "POISON" if index == 3 else f"neighbour {index}"
        return server.client.chat(CHAT, messages=[{"role": "user", "content": said}])

    answers = together(12, ask)
    poison = answers.pop(3)
    assert poison.status == 500
    assert poison.error["code"] == "backend_died"
    for answer in answers:
        assert answer.status == 200, answer
        assert answer.text == ANSWER
    server.wait_loaded(CHAT)
