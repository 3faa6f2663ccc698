"""Two models hammered in parallel where one fits: every answer whole, and from the right model."""

from __future__ import annotations

from tests.conftest import StartServer
from tests.support.http_client import run_concurrently
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT

TEXTS = {"extra.tiny-chat": CHAT_TEXT, "extra.tiny-tale": TALE_TEXT}


def test_every_answer_is_whole_and_of_its_model(start_server: StartServer) -> None:
    server = start_server("tiny-chat", "tiny-tale", max_loaded_models=1, gateway_workers=2)

    def hammer(index: int) -> None:
        for turn in range(5):
            model = list(TEXTS)[(index + turn) % 2]
            answer = server.client.chat(model, patience=60, stream=index % 4 < 2)
            assert answer.status == 200, answer
            assert answer.text == TEXTS[model]
            assert answer.complete
            named = answer.chunks[0] if answer.events else answer.json()
            assert named["model"] == model

    run_concurrently(8, hammer)
    assert server.state()["counters"]["evictions"] >= 1
    assert len(server.state()["models"]) == 1
