"""``keep_alive``: which requests load and unload a model, when, and who may."""

from __future__ import annotations

import math
from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.messages import work
from protocol.messages.calls import AbandonCall
from protocol.messages.models import Loaded, LoadModel, UnloadModel
from tests.gateway.api.error_bodies import api_error
from tests.gateway.app_client import AppClient, StreamedAnswer

GENERATE, CHAT, EMBED, EMBEDDINGS = "/api/generate", "/api/chat", "/api/embed", "/api/embeddings"
VALID: dict[str, dict[str, Any]] = {
    GENERATE: {"model": "m", "prompt": "Hi"},
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    EMBED: {"model": "m", "input": "Hi"},
    EMBEDDINGS: {"model": "m", "prompt": "Hi"},
}
NOTHING: dict[str, dict[str, Any]] = {GENERATE: {"model": "m"}, CHAT: {"model": "m", "messages": []}}
FOREIGN = {"Origin": "https://page.example"}


@pytest.fixture
def answering(ask: AppClient) -> AppClient:
    """An application whose engine and supervisor accept everything."""
    ask.answers["chat/completions"] = {"choices": [{"message": {"content": "A"}}]}
    ask.answers["embeddings"] = {"data": [{"embedding": [3.0, 4.0]}]}
    ask.reports[LoadModel] = Loaded("m", "", "llamacpp")
    ask.reports[UnloadModel] = ["m"]
    return ask


@pytest.mark.parametrize(
    ("keep_alive", "ttl"), [(0, 0.0), ("0s", 0.0), (-1, math.inf), ("-1", math.inf), (300, 300.0), ("5m", 300.0)]
)
@pytest.mark.parametrize("path", VALID)
def test_the_request_says_how_long_its_model_stays(
    answering: AppClient, path: str, keep_alive: Any, ttl: float
) -> None:
    assert answering("POST", path, {**VALID[path], "keep_alive": keep_alive}).status_code == 200
    assert [request.ttl for request in answering.asked(work.SubmitRequest)] == [ttl]
    assert len(answering.bus.sent) == 1


@pytest.mark.parametrize("path", VALID)
def test_a_request_without_it_changes_nothing(answering: AppClient, path: str) -> None:
    assert answering("POST", path, VALID[path]).status_code == 200
    assert [request.ttl for request in answering.asked(work.SubmitRequest)] == [None]


def test_a_streamed_answer_says_it_too(answering: AppClient) -> None:
    answering.answers["chat/completions"] = StreamedAnswer([{"choices": [{"delta": {"content": "A"}}]}])
    assert answering("POST", GENERATE, {"prompt": "Hi", "keep_alive": 0, "stream": True}).status_code == 200
    assert [request.ttl for request in answering.asked(work.SubmitRequest)] == [0.0]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", NOTHING)
def test_without_a_prompt_the_model_is_loaded(answering: AppClient, path: str, stream: bool) -> None:
    result = answering("POST", path, {**NOTHING[path], "keep_alive": "5m", "stream": stream})
    assert result.headers["Content-Type"] == ("application/x-ndjson" if stream else "application/json")
    assert result.text.endswith("}\n")
    answer = result.json
    assert (answer["model"], answer["done"], answer["done_reason"]) == ("m", True, "load")
    assert answer.get("response", "") == answer.get("message", {}).get("content", "") == ""
    (load,) = answering.asked(LoadModel)
    assert (load.model, load.options, load.pinned, load.ttl) == ("m", {}, None, 300.0)


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (GENERATE, {"model": "m", "prompt": ""}, {}),
        (CHAT, {"model": "m", "messages": []}, {}),
        *((path, {"model": "m"}, {"User-Agent": "ollama-python/0.6.3"}) for path in NOTHING),
    ],
)
def test_an_empty_prompt_loads_and_for_a_client_of_ollama_none_does(
    answering: AppClient, path: str, body: dict[str, Any], headers: dict[str, str]
) -> None:
    result = answering("POST", path, body, headers=headers)
    assert (result.status_code, result.json["done"], result.json["done_reason"]) == (200, True, "load")
    (load,) = answering.asked(LoadModel)
    assert (load.model, load.ttl) == ("m", None)


@pytest.mark.parametrize("path", NOTHING)
def test_for_other_clients_the_model_alone_is_400_as_documented(answering: AppClient, path: str) -> None:
    result = answering("POST", path, {"model": "m"})
    assert (result.status_code, api_error(result)["param"]) == (400, "prompt" if path == GENERATE else "messages")
    assert not answering.bus.sent


@pytest.mark.parametrize("report", [["m"], Failure(Code.NOT_LOADED, "it is not loaded")])
@pytest.mark.parametrize("path", NOTHING)
def test_without_a_prompt_zero_unloads_the_model(answering: AppClient, path: str, report: Any) -> None:
    answering.reports[UnloadModel] = report
    result = answering("POST", path, {**NOTHING[path], "keep_alive": 0})
    assert (result.status_code, result.json["done_reason"]) == (200, "unload")
    assert [type(message) for message in answering.bus.sent if not isinstance(message, AbandonCall)] == [UnloadModel]


@pytest.mark.parametrize("keep_alive", [0, -1])
@pytest.mark.parametrize("path", NOTHING)
def test_an_unknown_model_is_404(answering: AppClient, path: str, keep_alive: int) -> None:
    answering.reports[UnloadModel] = answering.reports[LoadModel] = Failure(
        Code.MODEL_NOT_FOUND, "there is no model 'm'"
    )
    result = answering("POST", path, {**NOTHING[path], "keep_alive": keep_alive})
    assert (result.status_code, api_error(result)["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("keep_alive", [0, -1])
def test_a_load_or_unload_names_its_model(answering: AppClient, keep_alive: int) -> None:
    result = answering("POST", GENERATE, {"keep_alive": keep_alive})
    assert (result.status_code, api_error(result)["param"]) == (400, "model")
    assert not answering.bus.sent


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {**body, "keep_alive": 0}) for path, body in VALID.items()),
        *((path, {**body, "keep_alive": 0}) for path, body in NOTHING.items()),
        *((path, {**body, "keep_alive": -1}) for path, body in NOTHING.items()),
        (CHAT, NOTHING[CHAT]),
    ],
)
def test_a_foreign_page_neither_loads_nor_unloads(answering: AppClient, path: str, body: dict[str, Any]) -> None:
    result = answering("POST", path, body, headers=FOREIGN)
    assert (result.status_code, api_error(result)["code"]) == (403, "forbidden")
    assert not answering.bus.sent


@pytest.mark.parametrize("path", VALID)
@pytest.mark.parametrize(("headers", "context"), [({}, 9000), (FOREIGN, 0)])
def test_num_ctx_counts_for_callers_who_may_change_the_server(
    answering: AppClient, path: str, headers: dict[str, str], context: int
) -> None:
    answering("POST", path, {**VALID[path], "options": {"num_ctx": 9000, "num_gpu": 1}}, headers=headers)
    answering("POST", path, {**VALID[path], "options": {"num_ctx": 0}}, headers=headers)
    assert [request.context for request in answering.asked(work.SubmitRequest)] == [context, 0]


def test_a_load_without_a_prompt_is_one_with_num_ctx(answering: AppClient) -> None:
    answering("POST", CHAT, {**NOTHING[CHAT], "options": {"num_ctx": 9000}})
    (load,) = answering.asked(LoadModel)
    assert (load.context, load.options) == (9000, {})


def test_a_foreign_page_has_inference_and_does_not_say_how_long(answering: AppClient) -> None:
    assert answering("POST", GENERATE, {**VALID[GENERATE], "keep_alive": -1}, headers=FOREIGN).status_code == 200
    assert [request.ttl for request in answering.asked(work.SubmitRequest)] == [None]
