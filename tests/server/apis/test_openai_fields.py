"""Fields of OpenAI's API that engines treat differently, or not at all, have one meaning here."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pytest

from tests.support.server import LemonbusServer

CHAT, EMBED = "extra.tiny-chat", "extra.tiny-embed"


def vectors(server: LemonbusServer, **more: Any) -> list[Any]:
    answer = server.client.post("/v1/embeddings", {"model": EMBED, "input": ["a", "b c"], **more})
    assert answer.status == 200, answer
    assert answer.json()["usage"]["prompt_tokens"] > 0
    return [item["embedding"] for item in answer.json()["data"]]


def test_dimensions_shortens_vectors(shared_server: LemonbusServer) -> None:
    whole, short = vectors(shared_server), vectors(shared_server, dimensions=4)
    for long, cut in zip(whole, short, strict=True):
        assert len(cut) == 4
        length = math.hypot(*long[:4])
        assert cut == pytest.approx([each / length for each in long[:4]], abs=1e-4)
    coded = vectors(shared_server, dimensions=4, encoding_format="base64")
    assert [struct.unpack("<4f", base64.b64decode(each)) for each in coded] == [
        pytest.approx(each, abs=1e-6) for each in short
    ]


def test_more_dimensions_than_the_model_has_are_refused(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.post("/v1/embeddings", {"model": EMBED, "input": "a", "dimensions": 5000})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_request", "dimensions")


@pytest.mark.parametrize("stop", ["", [""]])
def test_an_empty_stop_word_stops_nothing(shared_server: LemonbusServer, stop: str | list[str]) -> None:
    free = shared_server.client.chat(CHAT, max_tokens=4, temperature=0)
    assert shared_server.client.chat(CHAT, max_tokens=4, temperature=0, stop=stop).text == free.text != ""


def test_more_choices_than_slots_are_refused_with_the_option(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(CHAT, n=100, max_tokens=1)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_request", "n")
    assert "option `slots`" in answer.error["message"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
    ],
)
def test_values_that_engines_treat_differently_are_refused(
    shared_server: LemonbusServer, more: dict[str, Any], param: str
) -> None:
    answer = shared_server.client.chat(CHAT, **more)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert answer.error["param"] in (param, param.replace("[0]", "[...]"))
