"""Fields of chats and completions that mean the same on every recipe, although the engines differ."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compatibility.flm_on_npu import MODEL as FLM
from tests.support.models.genai_models import write_genai_model
from tests.support.server import LemonbusServer

LLAMACPP, OGA = "extra.tiny-chat", "extra.tiny-oga"
RECIPES = [LLAMACPP, OGA, FLM]
HI = [{"role": "user", "content": "hi"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def server(flm_server: LemonbusServer) -> LemonbusServer:
    """The server with flm, which has a model of each recipe."""
    folder = flm_server.models / "tiny-oga"
    if not folder.exists():
        write_genai_model(flm_server.models, "tiny-oga")
    return flm_server


@pytest.mark.parametrize("model", RECIPES)
def test_fields_of_chats(server: LemonbusServer, model: str) -> None:
    asked = {"model": model, "messages": HI, "temperature": 0, "max_tokens": 12}
    plain = server.client.post(CHAT, asked)
    assert (plain.status, bool(plain.text)) == (200, True), plain
    for stop in ("", [""], []):
        assert server.client.post(CHAT, {**asked, "stop": stop}).text == plain.text, "an empty text stops nothing"
    for wrong, param in (
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": [{"role": "narrator", "content": "hi"}]}, "messages[0].role"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
    ):
        refused = server.client.post(CHAT, {**asked, **wrong})
        assert (refused.status, refused.error["param"]) == (400, param), refused


@pytest.mark.parametrize("model", [LLAMACPP, FLM])
def test_more_choices_than_an_engine_can_compute(server: LemonbusServer, model: str) -> None:
    refused = server.client.post(CHAT, {"model": model, "messages": HI, "n": 100})
    assert (refused.status, refused.error["param"]) == (400, "n"), refused


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [LLAMACPP, OGA])
@pytest.mark.parametrize(
    ("route", "fields"),
    [
        (CHAT, {"logprobs": True}),
        (CHAT, {"logprobs": True, "top_logprobs": 0}),
        (CHAT, {"logprobs": True, "top_logprobs": None, "n": 2}),
        (TEXT, {"logprobs": 0}),
    ],
)
def test_log_probabilities_of_the_chosen_tokens(
    server: LemonbusServer, model: str, route: str, fields: dict[str, Any], stream: bool
) -> None:
    asked = {"model": model, "temperature": 0, "max_tokens": 3, "stream": stream, **fields}
    answer = server.client.post(route, {**asked, **({"messages": HI} if route == CHAT else {"prompt": "hi"})})
    assert answer.status == 200, answer
    choices = [choice for document in (answer.chunks if stream else [answer.json()]) for choice in document["choices"]]
    for index in range(fields.get("n", 1)):
        shown = [each["logprobs"] for each in choices if each["index"] == index and each.get("logprobs")]
        if route == TEXT:
            assert [len(tops) for each in shown for tops in each["top_logprobs"]] == [0, 0, 0]
            logprobs = [value for each in shown for value in each["token_logprobs"]]
        else:
            tokens = [token for each in shown for token in each["content"]]
            assert [token["top_logprobs"] for token in tokens] == [[], [], []]
            assert all(token["token"] for token in tokens)
            logprobs = [token["logprob"] for token in tokens]
        assert len(logprobs) == 3
        assert all(value <= 0 for value in logprobs)


def test_log_probabilities_of_an_engine_that_has_none(server: LemonbusServer) -> None:
    refused = server.client.post(CHAT, {"model": FLM, "messages": HI, "logprobs": True})
    assert (refused.status, refused.error["param"]) == (400, "logprobs"), refused
    assert server.client.post(CHAT, {"model": FLM, "messages": HI, "logprobs": False}).status == 200
