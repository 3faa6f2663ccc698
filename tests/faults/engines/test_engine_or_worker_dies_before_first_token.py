"""SIGKILL before the first token, and right after the last one: every client gets a complete answer, once."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.faults.conftest import load_and_ask
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.tiny_models import CHAT_TEXT, prompt_of
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, SLOW = "extra.tiny-chat", "extra.tiny-slow"
TOKENS = 20
"""As many as the story has."""


def pid_to_kill(server: LemonbusServer, kind: str, model: str) -> int:
    return server.engine_pid(model) if kind == "engine" else server.worker_pid(model)


def killed_before_the_first_token(server: LemonbusServer, kind: str, stream: bool) -> HttpExchange:
    """Return a request whose engine or worker is killed before the first token: the engine is stopped until then."""
    body = {"model": SLOW, "prompt": prompt_of(1000), "max_tokens": TOKENS, "temperature": 0, "stream": stream}
    with processes.stopped(server.engine_pid(SLOW)):
        request = server.client.start("POST", "/v1/completions", body)
        wait_for(lambda: server.state()["granted"] == 1, "the engine has got it")
        processes.kill(pid_to_kill(server, kind, SLOW))
    return request


@pytest.mark.parametrize("kind", ["engine", "worker"])
def test_deaths_in_a_row_before_the_first_token(faulty_server: LemonbusServer, kind: str) -> None:
    server = faulty_server
    assert server.client.post("/v1/load", {"model_name": SLOW}).status == 200
    for turn in range(2):
        server.wait_loaded(SLOW)
        request = killed_before_the_first_token(server, kind, stream=turn % 2 == 0)
        request.finish()
        assert request.status == 200, request
        assert request.complete
        assert request.text == CHAT_TEXT, "whole, and once"
        assert request.done == (turn % 2 == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_complete_answer_counts_even_if_its_worker_died_before_it_was_read(
    faulty_server: LemonbusServer, stream: bool
) -> None:
    server = faulty_server
    load_and_ask(server, {"model_name": CHAT})
    body = {"model": CHAT, "prompt": "hi", "max_tokens": 200, "temperature": 0, "stream": stream}
    with ExitStack() as stack:
        with processes.stopped(server.engine_pid(CHAT)):  # the answer comes while the gateway does not read
            request = server.client.start("POST", "/v1/completions", body)
            gateway = server.gateway_of(request)
            wait_for(lambda: server.state()["granted"] == 1, "it is granted")
            stack.enter_context(processes.stopped(gateway))
        wait_for(lambda: server.state()["granted"] == 0, "it is done, and the other gateway knows")
        worker = server.worker_pid(CHAT)
        processes.kill(worker)
        wait_for(lambda: not processes.alive(worker), "the worker is dead")
    request.finish()
    assert request.complete
    assert request.text == CHAT_TEXT
    assert request.done == stream
