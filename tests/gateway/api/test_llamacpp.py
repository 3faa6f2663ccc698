"""Reranking and slots: what goes to the engine, what comes back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.llamacpp.reranking import in_input_order
from gateway.api.llamacpp.slots import check_filename, documented_slots
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages import work
from protocol.runtime import logs
from protocol.runtime.logs import LEVEL_RANK
from tests.gateway.app_client import AppClient
from tests.support.accepted_share import accepted_share

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
IDLE = {"id": 0, "n_ctx": 2048, "speculative": False, "is_processing": False}
BUSY = {
    "id": 1,
    "n_ctx": 2048,
    "is_processing": True,
    "id_task": 123,
    "n_prompt_tokens": 479,
    "n_prompt_tokens_processed": 32,
    "n_prompt_tokens_cache": 0,
    "prompt": "a secret",
    "generated": "another",
    "params": {"top_k": 40, "samplers": ["top_k"], "stop": ["secret"], "generation_prompt": "secret"},
    "next_token": [{"has_next_token": True, "has_new_line": False, "n_remain": 42, "n_decoded": 15}],
}
REST = {
    **BUSY,
    "is_processing": False,
    "next_token": [{"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 9}],
}


def refused(
    ask: AppClient, result: Any, param: str | None = None, status: int = 400, kind: str = "invalid_request"
) -> Any:
    body = result.json
    assert result.status_code == status, body
    assert (body["status"], body["error"]["type"]) == ("error", kind)
    if param is not None:
        assert body["error"]["param"] == param
    return body


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
    refused(ask, ask("POST", "/v1/rerank", {**RERANK, "rank_fields": ["title"]}), "rank_fields")


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
        refused(ask, ask("POST", "/v2/rerank", {**RERANK, **change}), param)


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
    refused(ask, ask("POST", "/v1/reranking", {**RERANK, **change}), param)
    assert not ask.bus.sent


def test_a_model_of_another_type_is_refused(ask: AppClient) -> None:
    ask.answers["rerank"] = Failure(Code.INVALID_REQUEST, "it does not serve rerank", param="model")
    refused(ask, ask("POST", "/v1/reranking", RERANK), "model")


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b'{"results": []}', b'{"results": 5}', b'{"results": [1]}', b'{"results": [{"no": 1}]}', b"{}"],
)
def test_a_malformed_answer_of_the_engine_is_a_backend_error(answer: bytes) -> None:
    with pytest.raises(LemonbusError) as caught:
        in_input_order(answer, 1)
    assert caught.value.failure.code == Code.BACKEND_ERROR


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_slots_have_the_documented_fields_beside_the_engines(ask: AppClient, prefix: str) -> None:
    ask.answers["slots"] = [IDLE, BUSY, REST]
    result = ask("GET", f"{prefix}/slots")
    idle, busy, rest = result.json
    none = {"has_next_token": False, "n_remain": 0, "n_decoded": 0}
    assert idle == {**IDLE, "state": "idle", "task_id": -1, "cache_tokens": 0, "next_token": none}
    assert (busy["state"], busy["task_id"], busy["cache_tokens"]) == ("processing", 123, 479)
    assert busy["next_token"] == {"has_next_token": True, "has_new_line": False, "n_remain": 42, "n_decoded": 15}
    assert (rest["state"], rest["task_id"], rest["cache_tokens"], rest["next_token"]) == ("idle", -1, 479, none)
    assert busy["n_ctx"] == 2048
    assert busy["params"] == {"top_k": 40, "samplers": ["top_k"]}
    assert "secret" not in result.text
    (question,) = ask.asked(work.SubmitRequest)
    assert (question.endpoint, question.query, question.weight, question.model) == ("slots", "GET", 0, "")


def test_slots_of_a_named_model(ask: AppClient) -> None:
    ask.answers["slots"] = [IDLE]
    ask("GET", "/v1/slots?model=tiny")
    assert ask.asked(work.SubmitRequest)[0].model == "tiny"
    assert ask("HEAD", "/v1/slots").text == ""


def test_without_a_llamacpp_model_there_are_no_slots(ask: AppClient) -> None:
    ask.answers["slots"] = Failure(Code.INVALID_REQUEST, "No llamacpp model is loaded", param="model")
    refused(ask, ask("GET", "/v1/slots"), "model")
    refused(ask, ask("POST", "/v1/slots/0?action=erase"), "model")


@pytest.mark.parametrize("answer", [b"", b"{}", b"[1]", b'{"error":1}'])
def test_malformed_slots_are_a_backend_error(answer: bytes) -> None:
    with pytest.raises(LemonbusError) as caught:
        documented_slots(answer)
    assert caught.value.failure.code == Code.BACKEND_ERROR


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("save", {"id_slot": 0, "filename": "my_conversation_cache.bin", "n_saved": 1024}),
        ("restore", {"id_slot": 0, "filename": "my_conversation_cache.bin", "n_restored": 1024}),
    ],
)
def test_a_slot_is_saved_and_restored(ask: AppClient, prefix: str, action: str, answer: dict[str, Any]) -> None:
    ask.answers["slots"] = {**answer, "filename": "/where/it/really/is.bin"}
    body = {"filename": "my_conversation_cache.bin", "path": "/etc"}
    assert ask("POST", f"{prefix}/slots/0?action={action}", body).json == answer
    assert ask.asked(work.SubmitRequest)[0].query == f"{action}/0"
    assert ask.asked(work.SubmitRequest)[0].weight == 0
    assert json.loads(ask.bus.bodies[0]) == {"filename": "my_conversation_cache.bin"}


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_a_slot_is_erased_without_a_body(ask: AppClient, prefix: str) -> None:
    ask.answers["slots"] = {"id_slot": 3, "n_erased": 7}
    assert ask("POST", f"{prefix}/slots/3?action=erase&model=tiny").json == {"id_slot": 3, "n_erased": 7}
    assert (ask.asked(work.SubmitRequest)[0].query, ask.asked(work.SubmitRequest)[0].model) == ("erase/3", "tiny")


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("0?action=dance", "action"),
        ("0?action=", "action"),
        ("0", "action"),
        ("0?action=SAVE", "action"),
        ("x?action=save", "id"),
        ("-1?action=save", "id"),
        ("1e3?action=save", "id"),
        ("٣?action=save", "id"),
        ("0x1?action=save", "id"),
        ("99999999999999999999?action=save", "id"),
    ],
)
def test_wrong_actions_and_ids(ask: AppClient, path: str, param: str) -> None:
    refused(ask, ask("POST", f"/v1/slots/{path}", {"filename": "a.bin"}), param)
    assert not ask.bus.sent


@pytest.mark.parametrize(
    "name",
    [
        "",
        None,
        "..",
        ".",
        "../x",
        "a/b",
        "/etc/x",
        "a\\b",
        "x\0y",
        "x\ny",
        "a..b",
        ".hidden",
        " a",
        "a ",
        "a.",
        "x" * 201,
        5,
        ["a"],
    ],
)
@pytest.mark.parametrize("action", ["save", "restore"])
def test_a_filename_is_a_bare_name(ask: AppClient, action: str, name: Any) -> None:
    refused(ask, ask("POST", f"/v1/slots/0?action={action}", {"filename": name}), "filename")
    assert not ask.bus.sent


def test_a_save_without_any_body_names_the_filename(ask: AppClient) -> None:
    refused(ask, ask("POST", "/v1/slots/0?action=save"), "filename")


@pytest.mark.parametrize("name", ["a", "my_conversation_cache.bin", "a.b.c", "mit Umlaut ä.bin", "a-b_c"])
def test_plain_names_are_accepted(name: str) -> None:
    assert check_filename(name) == name


@accepted_share(0.1, examples=200, name=st.text(max_size=30) | st.from_regex(r"[\w.-]{1,20}", fullmatch=True))
def test_no_name_leads_out_of_a_directory(name: str) -> bool:
    try:
        check_filename(name)
    except LemonbusError:
        return False
    base = Path("/base/of/slots")
    assert (base / name).resolve().parent == base
    return True


def test_an_unknown_slot_is_404(ask: AppClient) -> None:
    ask.answers["slots"] = Failure(Code.NOT_FOUND, "tiny has no slot 9999", param="id")
    refused(ask, ask("POST", "/v1/slots/9999?action=save", {"filename": "a.bin"}), "id", 404, "not_found")


def test_a_foreign_page_may_not_change_slots(ask: AppClient) -> None:
    result = ask("POST", "/v1/slots/0?action=erase", headers={"Origin": "http://evil.example"})
    refused(ask, result, None, 403, "forbidden")
    assert not ask.bus.sent


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
