"""Figures that are requested right after an answer are about that answer."""

from __future__ import annotations

import pytest

from tests.support.clients.http_client import run_concurrently
from tests.support.server import LemonbusServer

ONE_SLOT, EIGHT_SLOTS = "extra.tiny-loop", "extra.tiny-chat"
"""Their workers report an end before its answer, and up to a moment later."""


@pytest.fixture
def server(changing_server: LemonbusServer) -> LemonbusServer:
    for model, slots in ((ONE_SLOT, 1), (EIGHT_SLOTS, 8)):
        load = {"model_name": model, "slots": slots}
        assert changing_server.client.post("/v1/load", load).status == 200
    return changing_server


@pytest.mark.parametrize("model", [ONE_SLOT, EIGHT_SLOTS])
def test_of_one_client(server: LemonbusServer, model: str) -> None:
    for tokens in range(3, 13):
        answer = server.client.chat(model, max_tokens=tokens)
        assert answer.status == 200
        assert server.client.get("/v1/stats").json()["output_tokens"] == tokens


@pytest.mark.parametrize(("model", "other"), [(ONE_SLOT, EIGHT_SLOTS), (EIGHT_SLOTS, ONE_SLOT)])
def test_of_several_clients(server: LemonbusServer, model: str, other: str) -> None:
    """Each client asks for the figures of its own model while the others use other models."""

    def ask(index: int) -> list[tuple[int, int]]:
        if index:
            return [(server.client.chat(other, stream=True, max_tokens=9).status, 0) for _ in range(10)]
        answers = []
        for tokens in range(3, 13):
            server.client.chat(model, max_tokens=tokens)
            answers.append((tokens, server.client.get(f"/v1/stats?model={model}").json()["output_tokens"]))
        return answers

    first, *others = run_concurrently(4, ask)
    assert first == [(tokens, tokens) for tokens in range(3, 13)]
    assert others == [[(200, 0)] * 10] * 3
