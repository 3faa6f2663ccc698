"""Embeddings and reranking against the tiny encoders."""

from __future__ import annotations

import math

import pytest

from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer

EMBED, RERANK = "extra.tiny-embed", "extra.tiny-rerank"
DOCUMENTS = ["cat", "dog", "zebra"]


def likeness(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def test_embeddings_by_the_openai_package(shared_server: LemonbusServer) -> None:
    with openai_client(shared_server) as client:
        answer = client.embeddings.create(model=EMBED, input=["hello there", "hello where", "zq zq zq"])
        alone = client.embeddings.create(model=EMBED, input="hello there", encoding_format="float")
    first, like, unlike = (item.embedding for item in answer.data)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert len(first) == 32
    assert likeness(first, like) > likeness(first, unlike)
    assert alone.data[0].embedding == pytest.approx(first, abs=1e-4)
    assert answer.model == EMBED
    assert answer.usage.prompt_tokens > 0


def test_tokens_and_base64(shared_server: LemonbusServer) -> None:
    tokens = shared_server.client.post("/v1/embeddings", {"model": EMBED, "input": [10, 11, 12]})
    assert tokens.status == 200, tokens
    assert len(tokens.json()["data"]) == 1
    coded = shared_server.client.post("/v1/embeddings", {"model": EMBED, "input": "a", "encoding_format": "base64"})
    assert isinstance(coded.json()["data"][0]["embedding"], str)


def test_reranking_keeps_the_order(shared_server: LemonbusServer) -> None:
    body = {"model": RERANK, "query": "cat", "documents": DOCUMENTS}
    answer = shared_server.client.post("/v1/reranking", body)
    assert answer.status == 200, answer
    found = answer.json()
    assert found["model"] == RERANK
    assert found["object"] == "list"
    assert [each["index"] for each in found["results"]] == [0, 1, 2]
    assert len({each["relevance_score"] for each in found["results"]}) == 3
    assert found["usage"]["total_tokens"] >= found["usage"]["prompt_tokens"] > 0


def test_coheres_form_has_the_best_document_first(shared_server: LemonbusServer) -> None:
    body = {"model": RERANK, "query": "cat", "documents": [{"text": each} for each in DOCUMENTS]}
    plain = shared_server.client.post("/v1/rerank", body).json()["results"]
    best = sorted(plain, key=lambda each: -each["relevance_score"])
    answer = shared_server.client.post("/v2/rerank", {**body, "top_n": 2})
    assert answer.status == 200, answer
    assert answer.json()["results"] == best[:2]
    assert answer.json()["meta"]["tokens"]["input_tokens"] > 0


@pytest.mark.parametrize(
    ("route", "body", "routes"),
    [
        ("/v1/embeddings", {"model": "extra.tiny-chat", "input": "a"}, "/v1/chat/completions, /v1/completions"),
        ("/v1/rerank", {"model": EMBED, "query": "cat", "documents": DOCUMENTS}, "/v1/embeddings"),
        ("/v1/chat/completions", {"model": EMBED, "messages": [{"role": "user", "content": "hi"}]}, "/v1/embeddings"),
        ("/v1/chat/completions", {"model": RERANK, "messages": [{"role": "user", "content": "hi"}]}, "/v1/rerank"),
    ],
)
def test_a_model_of_another_type_is_refused_with_its_own_routes(
    shared_server: LemonbusServer, route: str, body: dict[str, object], routes: str
) -> None:
    answer = shared_server.client.post(route, body)
    assert answer.status == 400, answer
    assert answer.error["message"].endswith(f"; it serves {routes}")
