"""Long lists go to the engine in pieces: the answers are the same as without pieces, and other requests are served in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

EMBED, RERANK, CHAT, LOOP = "extra.tiny-embed", "extra.tiny-rerank", "extra.tiny-chat", "extra.tiny-loop"
WORDS = ["cat", "dog", "zebra", "a horse of some age", "hello there"]
TEXTS = [f"{WORDS[number % 5]} {number % 7}" for number in range(75)]


def post(server: LemonbusServer, path: str, body: dict[str, Any]) -> Any:
    answer = server.client.post(path, body)
    assert answer.status == 200, answer
    return answer.json()


def test_embeddings_in_order(shared_server: LemonbusServer) -> None:
    whole = post(shared_server, "/v1/embeddings", {"model": EMBED, "input": TEXTS})
    parts = [
        post(shared_server, "/v1/embeddings", {"model": EMBED, "input": TEXTS[i : i + 15]}) for i in range(0, 75, 15)
    ]
    vectors = [each["embedding"] for part in parts for each in part["data"]]
    assert [each["index"] for each in whole["data"]] == list(range(75))
    for each, vector in zip(whole["data"], vectors, strict=True):
        assert each["embedding"] == pytest.approx(vector, abs=1e-4)
    assert whole["usage"]["prompt_tokens"] == sum(part["usage"]["prompt_tokens"] for part in parts)
    native = post(shared_server, "/embedding", {"model": EMBED, "content": TEXTS})
    assert [each["index"] for each in native] == list(range(75))


def test_reranking_of_many_documents(shared_server: LemonbusServer) -> None:
    body = {"model": RERANK, "query": "cat", "documents": TEXTS}
    whole = post(shared_server, "/v1/rerank", body)
    assert [each["index"] for each in whole["results"]] == list(range(75))
    best = sorted(whole["results"], key=lambda each: -each["relevance_score"])[:3]
    top = post(shared_server, "/v1/rerank", {**body, "top_n": 3})
    assert sorted(each["relevance_score"] for each in top["results"]) == pytest.approx(
        sorted(each["relevance_score"] for each in best), abs=1e-3
    )
    assert top["usage"] == whole["usage"]


def test_completions_of_many_prompts(shared_server: LemonbusServer) -> None:
    body: dict[str, Any] = {"model": CHAT, "prompt": TEXTS, "max_tokens": 3, "temperature": 0, "n": 2}
    whole = post(shared_server, "/v1/completions", {**body, "echo": True})
    assert [each["index"] for each in whole["choices"]] == list(range(150))
    assert [each["text"] for each in whole["choices"]] == [f"{text} Once a very" for text in TEXTS for _ in range(2)]
    assert whole["usage"]["completion_tokens"] == 450
    with openai_client(shared_server) as client:
        chunks = [*client.completions.create(**body, stream=True, stream_options={"include_usage": True})]
    texts = dict.fromkeys(range(150), "")
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert set(texts.values()) == {" Once a very"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [450]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == whole["usage"]["prompt_tokens"]


def test_native_completions_of_many_prompts(shared_server: LemonbusServer) -> None:
    body = {"model": CHAT, "prompt": TEXTS, "n_predict": 3, "temperature": 0}
    whole = post(shared_server, "/completion", body)
    assert [(each["index"], each["content"]) for each in whole] == [(i, " Once a very") for i in range(75)]
    assert shared_server.client.get("/v1/stats").json()["output_tokens"] == 225, "the pieces are one request"
    stream = shared_server.client.post("/completion", {**body, "stream": True})
    ends = [each["index"] for each in stream.chunks if each.get("stop")]
    assert sorted(ends) == list(range(75))


def test_another_request_comes_in_between(shared_server: LemonbusServer) -> None:
    body = {"model": LOOP, "prompt": ["hi"] * 500, "max_tokens": 100}
    with ThreadPoolExecutor(1) as pool:
        many = pool.submit(shared_server.client.post, "/v1/completions", body, patience=100.0)
        wait_for(lambda: shared_server.busy_slots(LOOP) > 0, "the list has begun")
        assert shared_server.client.chat(LOOP, max_tokens=1).status == 200
        assert not many.done(), "the chat did not wait for the whole list"
        assert len(many.result().json()["choices"]) == 500


def test_a_hang_up_ends_all_pieces(shared_server: LemonbusServer) -> None:
    body = {"model": LOOP, "prompt": ["hi"] * 1_000, "max_tokens": 1_000, "stream": True}
    many = shared_server.client.start("POST", "/v1/completions", body)
    many.until(lambda it: it.events)
    many.hang_up()
    shared_server.assert_idle()
