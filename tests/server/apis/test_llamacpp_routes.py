"""llama.cpp's own routes answer as the model's own llama-server does: same engine, same request, field by field.

What differs, and why:

* ``model`` is the name that the client used; ``props`` has it as ``model_alias``, and ``model_path`` is a bare file name,
  because no client may learn a path of the machine.
* An error has ``reason``, ``param`` and ``request_id`` beside llama-server's fields, and messages without C++ exceptions.
* ``content``, ``tokens`` and ``prompt`` are required, and ``tokens`` are whole numbers: llama-server answers nothing to
  nothing, or 500.
* ``data: null``, with which llama-server begins a stream of several prompts, is left out: it is not an event of its form.
* Probabilities are those of the engine; an answer to a client that asked for no stream is made from one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.support.clients.http_client import RawHttpClient, engine_client
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer

FILL, EMBED, RERANK, LOOP = "extra.tiny-infill", "extra.tiny-embed", "extra.tiny-rerank", "extra.tiny-loop"
SAY: dict[str, Any] = {"prompt": "hi", "n_predict": 20, "temperature": 0, "seed": 1, "cache_prompt": False}
GAP: dict[str, Any] = {"input_prefix": "def f(", "input_suffix": "return 1", "n_predict": 20, "temperature": 0}
GAP["cache_prompt"] = False
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


def engine_of(server: LemonbusServer, model: str) -> RawHttpClient:
    """Return a client of the model's engine itself."""
    assert server.client.post("/v1/load", {"model_name": model}).status == 200
    engine = server.engine_now(model)
    assert engine is not None
    return engine_client(engine)


def comparable(answer: Any, model: str = FILL) -> Any:
    """Leave out what differs between two runs: times and slots, and the model's name."""
    if isinstance(answer, list):
        return [comparable(each, model) for each in answer]
    kept = {**answer}
    for name, instead in (("timings", sorted(answer.get("timings", []))), ("id_slot", 0), ("model", model)):
        if name in kept:
            kept[name] = instead
    return kept


READS = [
    ("tokenize", {"content": "hello there"}),
    ("tokenize", {"content": "hello", "add_special": True, "with_pieces": True}),
    ("tokenize", {"content": "á <|im_end|>", "parse_special": False, "with_pieces": True}),
    ("tokenize", {"content": ["hello", 5, "you"]}),
    ("tokenize", {"content": ""}),
    ("detokenize", {"tokens": [109, 106, 113, 113, 116]}),
    ("detokenize", {"tokens": []}),
    ("apply-template", {"messages": CHAT}),
    ("apply-template", {"messages": CHAT, "add_generation_prompt": False}),
    ("apply-template", {"messages": [*CHAT, {"role": "assistant", "content": "Once"}]}),
]


@pytest.mark.parametrize(("route", "body"), READS, ids=str)
def test_reads_of_a_model(shared_server: LemonbusServer, route: str, body: dict[str, Any]) -> None:
    own = engine_of(shared_server, FILL).post(f"/{route}", body)
    assert own.status == 200, own
    for prefix in ["", *VERSION_PREFIXES]:
        ours = shared_server.client.post(f"{prefix}/{route}", {**body, "model": FILL})
        assert (ours.status, ours.json()) == (200, own.json())


def test_reads_of_models_without_a_chat(shared_server: LemonbusServer) -> None:
    for model in (EMBED, RERANK):
        body = {"content": "hello"}
        own = engine_of(shared_server, model).post("/tokenize", body).json()
        assert shared_server.client.post(f"/tokenize?model={model}", body).json() == own
    refused = shared_server.client.post("/apply-template", {"model": EMBED, "messages": CHAT})
    assert refused.status == 400
    assert "does not serve apply-template" in refused.json()["error"]["message"]


def test_the_model_used_last_is_meant_unless_one_is_named(shared_server: LemonbusServer) -> None:
    client, body = shared_server.client, {"tokens": [265]}
    assert client.chat("extra.tiny-tale", max_tokens=1).status == 200
    last = client.post("/detokenize", body).json()
    named = client.post(f"/detokenize?model={FILL}", body).json()
    assert (last, named) == ({"content": " another"}, {"content": " Once"})
    assert client.post("/detokenize", body).json() == named, "a read is a use of its model"
    conflict = client.post(f"/detokenize?model={FILL}", {**body, "model": "extra.tiny-tale"})
    assert (conflict.status, conflict.json()["error"]["param"]) == (400, "model")


def test_props_have_no_path(shared_server: LemonbusServer) -> None:
    own = engine_of(shared_server, FILL).get("/props").json()
    ours = shared_server.client.get(f"/props?model={FILL}").json()
    assert own["model_path"].endswith("/tiny-infill.gguf")
    assert ours == {**own, "model_path": "tiny-infill.gguf", "model_alias": FILL}
    assert shared_server.client.get("/props").json()["build_info"] == own["build_info"]


def test_props_load_nothing(shared_server: LemonbusServer) -> None:
    shared_server.client.post("/v1/unload", {"model_name": "extra.tiny-tool"})
    refused = shared_server.client.get("/props?model=extra.tiny-tool")
    assert refused.status == 400
    assert "not a loaded model" in refused.json()["error"]["message"]
    assert shared_server.client.post("/props", {}).status == 405


GENERATIONS = [
    ("completion", SAY),
    ("completions", {**SAY, "n_probs": 2}),
    ("completion", {**SAY, "stop": ["story"], "return_tokens": True}),
    ("completion", {**SAY, "prompt": ["hi", "yo"]}),
    ("completion", {**SAY, "prompt": [1, 109, 106], "n_cmpl": 2}),
    ("completion", {**SAY, "response_fields": ["content", "generation_settings/n_predict", "no/such"]}),
    ("completion", {**SAY, "n_predict": 3}),
    ("infill", GAP),
    ("infill", {**GAP, "input_extra": [{"filename": "a.py", "text": "y = 1"}], "prompt": "x"}),
]


@pytest.mark.parametrize(("route", "body"), GENERATIONS, ids=str)
def test_completions(shared_server: LemonbusServer, route: str, body: dict[str, Any]) -> None:
    engine = engine_of(shared_server, FILL)
    own = engine.post(f"/{route}", body)
    assert own.status == 200, own
    ours = shared_server.client.post(f"/{route}?model={FILL}", body)
    assert ours.status == 200, ours
    assert comparable(ours.json()) == comparable(own.json())


def events_of(exchange: HttpExchange) -> dict[int, list[Any]]:
    """Return the events of each completion: only their order is certain."""
    assert exchange.status == 200, exchange
    assert exchange.headers["content-type"].startswith("text/event-stream")
    assert exchange.complete
    events = [event.json() for event in exchange.messages]
    found: dict[int, list[Any]] = {}
    for event in events:
        if event is not None:
            found.setdefault(event.get("index", -1), []).append(comparable(event))
    return found


@pytest.mark.parametrize(("route", "body"), GENERATIONS, ids=str)
def test_streams_end_with_the_event_that_says_stop(
    shared_server: LemonbusServer, route: str, body: dict[str, Any]
) -> None:
    body = {**body, "stream": True}
    own = engine_of(shared_server, FILL).post(f"/{route}", body)
    ours = shared_server.client.post(f"/{route}", {**body, "model": FILL})
    assert events_of(ours) == events_of(own)
    assert b"[DONE]" not in ours.body


def test_a_stream_shows_progress_and_timings_that_were_asked_for(shared_server: LemonbusServer) -> None:
    body = {**SAY, "model": FILL, "stream": True, "return_progress": True, "timings_per_token": True}
    events = [event.json() for event in shared_server.client.post("/completion", body).messages]
    assert events[0]["prompt_progress"]["total"] == 3
    assert all("timings" in event for event in events)


@pytest.mark.parametrize("route", ["embedding", "embeddings"])
@pytest.mark.parametrize("body", [{"content": "hello"}, {"input": ["a", "b"]}, {"input": "a", "embd_normalize": -1}])
def test_embeddings_in_llamacpps_form(shared_server: LemonbusServer, route: str, body: dict[str, Any]) -> None:
    own = engine_of(shared_server, EMBED).post(f"/{route}", body)
    assert own.status == 200, own
    ours = shared_server.client.post(f"/{route}", {**body, "model": EMBED}).json()
    assert [each["index"] for each in ours] == [each["index"] for each in own.json()]
    for one, other in zip(ours, own.json(), strict=True):
        assert one["embedding"][0] == pytest.approx(other["embedding"][0], abs=1e-4)


@pytest.mark.parametrize("route", ["rerank", "reranking", "reranker", "v1/reranker"])
def test_reranking_under_its_names(shared_server: LemonbusServer, route: str) -> None:
    body = {"query": "cat", "documents": ["cat", "zebra"]}
    own = engine_of(shared_server, RERANK).post("/rerank", body).json()
    ours = shared_server.client.post(f"/{route}?model={RERANK}", body).json()
    assert ours["model"] == RERANK
    assert ours["usage"] == own["usage"]
    scores = {each["index"]: each["relevance_score"] for each in own["results"]}
    assert {each["index"]: each["relevance_score"] for each in ours["results"]} == pytest.approx(scores, abs=1e-3)


def test_what_llamacpp_has_from_openai(shared_server: LemonbusServer) -> None:
    body = {"model": FILL, "messages": CHAT, "max_tokens": 3, "temperature": 0}
    assert (
        shared_server.client.post("/chat/completions", body).json()["choices"][0]["message"]["content"]
        == " Once a very"
    )
    assert FILL in {each["id"] for each in shared_server.client.get("/models").json()["data"]}
    assert len(shared_server.client.get(f"/slots?model={FILL}").json()) == 4


WRONG = [
    ("completion", {**SAY, "prompt": [999_999]}, 400, "invalid_request_error"),
    ("completion", {"n_predict": 3}, 400, "invalid_request_error"),
    ("completion", {**SAY, "prompt": [5] * 40_000}, 400, "exceed_context_size_error"),
    ("completion", {**SAY, "prompt": [5] * 40_000, "stream": True}, 400, "exceed_context_size_error"),
    ("infill", {"input_prefix": "a"}, 400, "invalid_request_error"),
    ("tokenize", {"content": {}}, 400, "invalid_request_error"),
    ("tokenize", {}, 400, "invalid_request_error"),
    ("detokenize", {"tokens": ["a"]}, 400, "invalid_request_error"),
    ("detokenize", {"tokens": [999_999]}, 400, "invalid_request_error"),
    ("apply-template", {"messages": []}, 400, "invalid_request_error"),
    ("apply-template", {"messages": [{"role": "user", "content": 5}]}, 400, "invalid_request_error"),
    ("embedding", {"content": "a"}, 400, "invalid_request_error"),
]


@pytest.mark.parametrize(("route", "body", "status", "kind"), WRONG, ids=lambda value: str(value)[:60])
def test_errors_have_llamacpps_form(
    shared_server: LemonbusServer, route: str, body: dict[str, Any], status: int, kind: str
) -> None:
    answer = shared_server.client.post(f"/{route}", {**body, "model": FILL})
    assert answer.status == status, answer
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (status, kind)
    assert error["message"]
    assert "exception" not in error["message"]
    assert "_M_" not in error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    prefixed = shared_server.client.post(f"/v1/{route}", {**body, "model": FILL})
    assert isinstance(prefixed.json()["error"]["code"], str), "under a prefix errors have the default form"


def test_infill_needs_a_model_made_for_it(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.post("/infill", {**GAP, "model": "extra.tiny-chat"})
    assert (answer.status, answer.json()["error"]["type"]) == (501, "not_supported_error")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.png", "https://example.com/x.png", "file:///etc/passwd"])
def test_neither_a_template_nor_a_chat_fetches_anything(shared_server: LemonbusServer, url: str) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    for route in ("/apply-template", "/v1/chat/completions", "/chat/completions"):
        answer = shared_server.client.post(route, {"model": FILL, "messages": messages})
        assert answer.status == 400
        assert "data:" in json.dumps(answer.json())


def test_a_read_does_not_wait_for_generations(shared_server: LemonbusServer) -> None:
    """All slots are busy and more requests wait: tokens are counted anyway, and ``stats`` is not about that."""
    client = shared_server.client
    streams = [client.start_chat(LOOP, stream=True, max_tokens=4000) for _ in range(6)]
    try:
        for stream in streams[:4]:
            stream.until(lambda it: bool(it.events))
        before = client.get(f"/v1/stats?model={LOOP}").json()
        counted = client.post("/tokenize", {"model": LOOP, "content": "hello"}, patience=5.0)
        assert len(counted.json()["tokens"]) == 5
        assert client.get(f"/v1/stats?model={LOOP}").json() == before
        assert not any(stream.complete for stream in streams[:4])
    finally:
        for stream in streams:
            stream.connection.close()


def test_stats_after_a_native_completion(shared_server: LemonbusServer) -> None:
    assert shared_server.client.post("/completion", {**SAY, "model": FILL}).status == 200
    stats = shared_server.client.get(f"/v1/stats?model={FILL}").json()
    assert (stats["input_tokens"], stats["output_tokens"]) == (3, 20)
