"""Many parallel requests to two models of which only one fits: every answer is complete and from the right model."""

from __future__ import annotations

from tests.support.clients.http_client import run_concurrently
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT
from tests.support.server import LemonbusServer

TEXTS = {"extra.tiny-chat": CHAT_TEXT, "extra.tiny-tale": TALE_TEXT}


def test_every_answer_is_whole_and_of_its_model(single_model_server: LemonbusServer) -> None:
    server = single_model_server
    before = server.state()["counters"].get("evictions", 0)

    def hammer(index: int) -> None:
        for turn in range(3):
            model = list(TEXTS)[(index + turn) % 2]
            answer = server.client.chat(model, patience=60, stream=index % 4 < 2)
            assert answer.status == 200, answer
            assert answer.text == TEXTS[model]
            assert answer.complete
            named = answer.chunks[0] if answer.events else answer.json()
            assert named["model"] == model

    run_concurrently(8, hammer)
    assert server.state()["counters"]["evictions"] > before
    assert len(server.state()["models"]) == 1
