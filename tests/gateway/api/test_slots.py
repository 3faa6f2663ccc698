"""Slots: what goes to the engine, what comes back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.llamacpp.slots import check_filename, documented_slots
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages import work
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient
from tests.support.accepted_share import accepted_share

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
    is_error(ask("GET", "/v1/slots"), 400, "invalid_request", "model")
    is_error(ask("POST", "/v1/slots/0?action=erase"), 400, "invalid_request", "model")


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
    is_error(ask("POST", f"/v1/slots/{path}", {"filename": "a.bin"}), 400, "invalid_request", param)
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
    is_error(ask("POST", f"/v1/slots/0?action={action}", {"filename": name}), 400, "invalid_request", "filename")
    assert not ask.bus.sent


def test_a_save_without_any_body_names_the_filename(ask: AppClient) -> None:
    is_error(ask("POST", "/v1/slots/0?action=save"), 400, "invalid_request", "filename")


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
    is_error(ask("POST", "/v1/slots/9999?action=save", {"filename": "a.bin"}), 404, "not_found", "id")


def test_a_foreign_page_may_not_change_slots(ask: AppClient) -> None:
    result = ask("POST", "/v1/slots/0?action=erase", headers={"Origin": "http://evil.example"})
    is_error(result, 403, "forbidden")
    assert not ask.bus.sent
