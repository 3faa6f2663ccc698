"""Two models hammered in parallel with room for one: every answer whole, and from the right model."""

from __future__ import annotations

from tests.conftest import OpenHouse
from tests.house.client import together
from tests.house.models import STORY, TALE

SAYS = {"extra.tiny-chat": STORY, "extra.tiny-tale": TALE}


def test_every_answer_is_whole_and_of_its_model(open_house: OpenHouse) -> None:
    server = open_house("tiny-chat", "tiny-tale", max_loaded_models=1, gateway_workers=2)

    def hammer(index: int) -> None:
        for turn in range(5):
            model = list(SAYS)[(index + turn) % 2]
            answer = server.client.chat(model, patience=60, stream=index % 4 < 2)
            assert answer.status == 200, answer
            assert answer.text == SAYS[model]
            assert answer.complete
            named = answer.chunks[0] if answer.events else answer.json()
            assert named["model"] == model

    together(8, hammer)
    assert server.state()["counters"]["evictions"] >= 1
    assert len(server.state()["models"]) == 1
