"""``/api/embeddings`` and ``/api/embed``: what goes on the bus, and the answers of both forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.messages import work
from tests.gateway.api.error_bodies import api_error
from tests.gateway.app_client import AppClient

EMBEDDINGS, EMBED = "/api/embeddings", "/api/embed"
ANSWER = {
    "object": "list",
    "model": "m",
    "data": [{"index": 1, "embedding": [0.6, 0.8]}, {"index": 0, "embedding": [3.0, 4.0]}],
    "usage": {"prompt_tokens": 7, "total_tokens": 7},
}
ONE = {**ANSWER, "data": [{"index": 0, "embedding": [3.0, 4.0]}]}


@pytest.mark.parametrize(
    ("path", "fields", "texts", "weight"),
    [
        (EMBEDDINGS, {"input": "a"}, "a", 1),
        (EMBEDDINGS, {"input": ["a", "b"]}, ["a", "b"], 2),
        (EMBEDDINGS, {"prompt": "a", "options": {"num_ctx": 5}, "keep_alive": "5m"}, "a", 1),
        (EMBEDDINGS, {"prompt": "a", "input": "a"}, "a", 1),
        (EMBED, {"input": "a", "truncate": True}, "a", 1),
        (EMBED, {"input": ["a", "b"], "options": None}, ["a", "b"], 2),
    ],
)
@pytest.mark.parametrize("model", [{"model": "m"}, {}])
def test_what_goes_on_the_bus(
    ask: AppClient, path: str, fields: dict[str, Any], texts: Any, weight: int, model: dict[str, str]
) -> None:
    ask.answers["embeddings"] = ANSWER
    assert ask("POST", path, {**model, **fields}).status_code == 200
    (sent,) = ask.asked(work.SubmitRequest)
    assert (sent.endpoint, sent.model, sent.weight, sent.stream) == (
        "embeddings",
        model.get("model", ""),
        weight,
        False,
    )
    assert json.loads(ask.bus.bodies[0]) == {**model, "input": texts}


def test_the_documented_answer(ask: AppClient) -> None:
    ask.answers["embeddings"] = ANSWER
    result = ask("POST", EMBEDDINGS, {"model": "m", "input": ["a", "b"]})
    assert result.text == '{"model":"m","embeddings":[[3.0,4.0],[0.6,0.8]],"dimensions":2,"total_tokens":7}'


def test_a_prompt_is_answered_with_one_vector_too(ask: AppClient) -> None:
    ask.answers["embeddings"] = ONE
    result = ask("POST", EMBEDDINGS, {"model": "m", "prompt": "a"})
    assert result.json == {
        "model": "m",
        "embeddings": [[3, 4]],
        "dimensions": 2,
        "total_tokens": 7,
        "embedding": [3, 4],
    }


def test_ollamas_newer_form(ask: AppClient) -> None:
    ask.answers["embeddings"] = ANSWER
    answer = ask("POST", EMBED, {"model": "m", "input": ["a", "b"]}).json
    assert answer["total_duration"] >= answer["load_duration"] >= 0
    del answer["total_duration"], answer["load_duration"]
    assert answer == {"model": "m", "embeddings": [[3, 4], [0.6, 0.8]], "prompt_eval_count": 7}


@pytest.mark.parametrize("path", [EMBEDDINGS, EMBED])
def test_dimensions_cut_vectors_to_length_1(ask: AppClient, path: str) -> None:
    vector = [3.0, 4.0, 12.0]
    ask.answers["embeddings"] = {"data": [{"embedding": vector}, {"embedding": [0.0, 0.0, 1.0]}]}
    answer = ask("POST", path, {"model": "m", "input": ["a", "b"], "dimensions": 2}).json
    assert answer["embeddings"] == [[0.6, 0.8], [0.0, 0.0]]
    assert answer.get("dimensions", 2) == 2


@pytest.mark.parametrize("path", [EMBEDDINGS, EMBED])
def test_more_dimensions_than_the_model_has_are_refused(ask: AppClient, path: str) -> None:
    ask.answers["embeddings"] = ANSWER
    result = ask("POST", path, {"model": "m", "input": "a", "dimensions": 3})
    assert (result.status_code, api_error(result)["param"]) == (400, "dimensions")
    assert "have 2" in api_error(result)["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [1, 2]}, "input[0]"),
        ({"input": {}}, "input"),
        ({"input": "a", "prompt": "b"}, "input"),
        ({"input": "a", "model": 1}, "model"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "keep_alive": "soon"}, "keep_alive"),
    ],
)
@pytest.mark.parametrize("path", [EMBEDDINGS, EMBED])
def test_the_wrong_field_is_named_and_nothing_is_sent(
    ask: AppClient, path: str, fields: dict[str, Any], param: str
) -> None:
    result = ask("POST", path, {"model": "m", **fields})
    assert result.status_code == 400
    assert (api_error(result)["type"], api_error(result)["param"]) == ("invalid_request", param)
    assert not ask.bus.sent


@pytest.mark.parametrize("answer", [{}, {"data": 5}, {"data": [{"embedding": "AAAA"}]}])
@pytest.mark.parametrize("path", [EMBEDDINGS, EMBED])
def test_an_answer_that_cannot_be_read_is_the_engines_fault(ask: AppClient, path: str, answer: Any) -> None:
    ask.answers["embeddings"] = answer
    result = ask("POST", path, {"model": "m", "input": "a"})
    assert (result.status_code, api_error(result)["code"]) == (500, "backend_error")
