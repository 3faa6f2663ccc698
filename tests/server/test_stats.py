"""Figures that are asked for right after an answer are about that answer."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.support.http_client import run_concurrently
from tests.support.server import LemonbusServer

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"


@pytest.fixture(scope="module", params=[1, 8], ids=["one slot", "eight slots"])
def server(start_module_server: StartServer, request: pytest.FixtureRequest) -> LemonbusServer:
    """A server whose workers report an end before its answer (one slot), or up to a moment later."""
    return start_module_server("tiny-chat", "tiny-loop", slots=request.param, gateway_workers=1, load=[CHAT, LOOP])


def test_of_one_client(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    for tokens in range(3, 23):
        answer = server.client.chat(LOOP, max_tokens=tokens)
        assert answer.status == 200
        assert server.client.get("/v1/stats").json()["output_tokens"] == tokens


def test_of_several_clients(server: LemonbusServer) -> None:
    """Each asks for the figures of its own model while the others use another one."""
    server.wait_loaded(CHAT, LOOP)

    def ask(index: int) -> list[tuple[int, int]]:
        if index:
            return [(server.client.chat(LOOP, stream=True, max_tokens=9).status, 0) for _ in range(20)]
        answers = []
        for tokens in range(3, 13):
            server.client.chat(CHAT, max_tokens=tokens)
            answers.append((tokens, server.client.get(f"/v1/stats?model={CHAT}").json()["output_tokens"]))
        return answers

    first, *others = run_concurrently(4, ask)
    assert first == [(tokens, tokens) for tokens in range(3, 13)]
    assert others == [[(200, 0)] * 20] * 3
