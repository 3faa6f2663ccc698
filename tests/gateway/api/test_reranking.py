"""Reranking: what goes to the engine, what comes back, what is refused, and what is logged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.llamacpp.reranking import in_input_order
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages import work
from protocol.runtime import logs
from protocol.runtime.logs import LEVEL_RANK
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

DOCUMENTS = ["Paris is the capital of France.", "Berlin is the capital of Germany.", "Madrid is the capital of Spain."]


RERANK = {"model": "bge-reranker-v2-m3-GGUF", "query": "What is the capital of France?", "documents": DOCUMENTS}


SCORES: dict[str, Any] = {
    "model": "bge-reranker-v2-m3-GGUF",
    "object": "list",
    "usage": {"prompt_tokens": 51, "total_tokens": 51},
    "results": [
        {"index": 0, "relevance_score": 8.6},
        {"index": 2, "relevance_score": -3.5},
        {"index": 1, "relevance_score": -5.4},
    ],
}


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize("route", ["rerank", "reranking", "reranker"])
def test_results_come_in_the_order_of_the_documents(ask: AppClient, prefix: str, route: str) -> None:
    ask.answers["rerank"] = SCORES
    body = ask("POST", f"{prefix}/{route}", RERANK).json
    assert body == {**SCORES, "results": sorted(SCORES["results"], key=lambda result: result["index"])}
    (question,) = ask.asked(work.SubmitRequest)
    assert (question.endpoint, question.model, question.weight) == ("rerank", "bge-reranker-v2-m3-GGUF", 3)
    assert json.loads(ask.bus.bodies[0]) == RERANK


def test_unknown_fields_pass_through(ask: AppClient) -> None:
    ask.answers["rerank"] = SCORES
    ask("POST", "/v1/rerank", {**RERANK, "top_n": 2})
    assert json.loads(ask.bus.bodies[0])["top_n"] == 2


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_documents_may_be_objects_with_a_text(ask: AppClient, path: str) -> None:
    ask.answers["rerank"] = SCORES
    documents = [{"text": DOCUMENTS[0], "title": "x"}, *DOCUMENTS[1:]]
    assert ask("POST", path, {**RERANK, "documents": documents}).status_code == 200
    assert json.loads(ask.bus.bodies[0]) == RERANK


def test_documents_come_back_if_they_are_asked_for(ask: AppClient) -> None:
    ask.answers["rerank"] = SCORES
    documents = [{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]]
    results = ask("POST", "/v1/rerank", {**RERANK, "documents": documents, "return_documents": True}).json["results"]
    assert [each["document"] for each in results] == [{"text": each} for each in DOCUMENTS]
    is_error(ask("POST", "/v1/rerank", {**RERANK, "rank_fields": ["title"]}), 400, "invalid_request", "rank_fields")


def test_coheres_form(ask: AppClient) -> None:
    ask.answers["rerank"] = SCORES
    body = {**RERANK, "top_n": 2, "return_documents": True, "max_tokens_per_doc": 4096, "rank_fields": None}
    result = ask("POST", "/v2/rerank", body)
    assert result.json == {
        "id": result.headers["X-Request-ID"],
        "results": [
            {"index": 0, "relevance_score": 8.6, "document": {"text": DOCUMENTS[0]}},
            {"index": 2, "relevance_score": -3.5, "document": {"text": DOCUMENTS[2]}},
        ],
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 51},
        },
    }
    assert json.loads(ask.bus.bodies[0]) == RERANK
    (question,) = ask.asked(work.SubmitRequest)
    assert (question.endpoint, question.weight) == ("rerank", 3)
    assert [each["index"] for each in ask("POST", "/v2/rerank", RERANK).json["results"]] == [0, 2, 1]
    for change, param in (({"rank_fields": ["title"]}, "rank_fields"), ({"documents": []}, "documents")):
        is_error(ask("POST", "/v2/rerank", {**RERANK, **change}), 400, "invalid_request", param)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": "one"}, "documents"),
        ({"documents": ["a", 5]}, "documents[1]"),
        ({"documents": [{"title": "a"}]}, "documents[0].text"),
        ({"documents": [{"text": 5}]}, "documents[0].text"),
        ({"documents": ["a"] * 10_001}, "documents"),
        ({"query": None}, "query"),
        ({"query": ["q"]}, "query"),
        ({"model": 7}, "model"),
        ({"top_n": -1}, "top_n"),
        ({"top_n": 10**12}, "top_n"),
        ({"top_n": 1.5}, "top_n"),
        ({"top_n": True}, "top_n"),
        ({"texts": ["a"]}, "texts"),
    ],
)
def test_reranking_says_which_field_is_wrong(ask: AppClient, change: dict[str, Any], param: str) -> None:
    is_error(ask("POST", "/v1/reranking", {**RERANK, **change}), 400, "invalid_request", param)
    assert not ask.bus.sent


def test_a_model_of_another_type_is_refused(ask: AppClient) -> None:
    ask.answers["rerank"] = Failure(Code.INVALID_REQUEST, "it does not serve rerank", param="model")
    is_error(ask("POST", "/v1/reranking", RERANK), 400, "invalid_request", "model")


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b'{"results": []}', b'{"results": 5}', b'{"results": [1]}', b'{"results": [{"no": 1}]}', b"{}"],
)
def test_a_malformed_answer_of_the_engine_is_a_backend_error(answer: bytes) -> None:
    with pytest.raises(LemonbusError) as caught:
        in_input_order(answer, 1)
    assert caught.value.failure.code == Code.BACKEND_ERROR


@pytest.mark.parametrize("level", LEVEL_RANK)
def test_client_text_is_logged_at_level_trace_only(ask: AppClient, records: list[dict[str, Any]], level: str) -> None:
    logs.configure("gateway", level, "json")
    ask.answers["rerank"] = SCORES
    ask("POST", "/v1/rerank", RERANK, headers={"X-Request-ID": "r1"})
    ask.answers["rerank"] = Failure(Code.BACKEND_DIED, "the engine died", detail="last lines")
    ask("POST", "/v1/rerank", RERANK)
    telling = [record for record in records if "capital of France" in json.dumps(record)]
    if level != "trace":
        assert not telling
        return
    assert {record["level"] for record in telling} == {"trace"}
    assert (telling[0]["request_id"], telling[0]["endpoint"]) == ("r1", "rerank")
    assert json.loads(telling[0]["body"]) == RERANK
