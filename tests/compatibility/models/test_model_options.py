"""models/{id}/options: saved without a load, checked like the options of a load, in force from the next load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"


@pytest.fixture
def server(changing_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """The server, without saved options and without a loaded model before and after the test."""
    changing_server.client.post("/v1/unload", {})
    yield changing_server
    assert ask(changing_server, "DELETE").json()["saved"] == {}
    changing_server.client.post("/v1/unload", {})


def ask(server: LemonbusServer, method: str, body: Any = None, model: str = CHAT, prefix: str = "/v1") -> HttpExchange:
    return server.client.start(method, f"{prefix}/models/{model}/options", body).finish()


def saved(server: LemonbusServer) -> Any:
    path = server.home / "state" / "recipe_options.json"
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_the_documents_examples(server: LemonbusServer, prefix: str) -> None:
    before = ask(server, "GET", prefix=prefix).json()
    assert (before["model_name"], before["recipe"], before["saved"]) == (CHAT, "llamacpp", {})
    assert before["effective"] == before["defaults"]
    assert before["effective"].keys() >= {"ctx_size", "llamacpp_backend", "llamacpp_args", "model_name"}

    body = ask(server, "POST", {"ctx_size": 512, "llamacpp_args": "--no-mmap"}, prefix=prefix).json()
    assert body["saved"] == saved(server)[CHAT] == {"ctx_size": 512, "llamacpp_args": "--no-mmap"}
    assert body["effective"] == {**body["defaults"], "ctx_size": 512, "llamacpp_args": "--no-mmap"}
    assert (body["defaults"], body["resolved_ctx_size"]) == (before["defaults"], 512)
    shown = server.client.get(f"{prefix}/models/{CHAT}").json()
    assert (shown["recipe_options"], shown["context_length"]) == (body["saved"], 512)

    body = ask(server, "POST", {"ctx_size": -1}, prefix=prefix).json()
    assert (body["saved"], body["resolved_ctx_size"]) == ({"ctx_size": -1, "llamacpp_args": "--no-mmap"}, -1)
    body = ask(server, "POST", {"ctx_size": None}, prefix=prefix).json()
    assert body["saved"] == {"llamacpp_args": "--no-mmap"}
    assert ask(server, "DELETE", prefix=prefix).json() == before
    assert CHAT not in saved(server)


def test_a_dry_run_saves_nothing(server: LemonbusServer) -> None:
    body = ask(server, "POST", {"ctx_size": 640, "dry_run": True}).json()
    assert (body["saved"], body["effective"]["ctx_size"], body["resolved_ctx_size"]) == ({}, 640, 640)
    assert CHAT not in saved(server)


def test_a_loaded_model_keeps_its_options_until_it_is_loaded_again(server: LemonbusServer) -> None:
    def loaded() -> Any:
        (shown,) = [each for each in server.health()["all_models_loaded"] if each["model_name"] == CHAT]
        return shown["recipe_options"]

    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    before = loaded()
    body = ask(server, "GET").json()
    assert (body["loaded_options"], body["reload_needed"]) == (before, False)
    body = ask(server, "POST", {"ctx_size": 512}).json()
    assert (body["loaded_options"], body["reload_needed"]) == (before, True)
    assert loaded() == before
    assert server.client.chat(CHAT).status == 200
    assert loaded() == before
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    assert ask(server, "GET").json()["loaded_options"] == {}
    assert server.client.chat(CHAT).status == 200
    assert loaded()["ctx_size"] == 512
    body = ask(server, "GET").json()
    assert (body["loaded_options"], body["reload_needed"], body["resolved_ctx_size"]) == (loaded(), False, 512)


def test_null_in_a_load_passes_over_one_saved_option_and_leaves_it_saved(server: LemonbusServer) -> None:
    before = {"ctx_size": 512, "llamacpp_args": "--no-mmap"}
    assert ask(server, "POST", before).json()["saved"] == before
    for more in ({}, {"save_options": True, "ctx_size": 768}):
        body = {"model_name": CHAT, "llamacpp_args": None, "steps": None, **more}
        assert server.client.post("/v1/load", body).status == 200
        now = ask(server, "GET").json()
        loaded = now["loaded_options"]
        assert (loaded["ctx_size"], "--no-mmap" in loaded.get("llamacpp_args", "")) == (
            more.get("ctx_size", 512),
            False,
        )
        assert now["saved"] == saved(server)[CHAT] == {**before, "ctx_size": loaded["ctx_size"]}
    assert server.client.post("/v1/load", {"model_name": CHAT, "ctx_size": None}).status == 200
    assert ask(server, "GET").json()["loaded_options"]["ctx_size"] == server.settings.ctx_size
    ask(server, "DELETE")


@pytest.mark.parametrize("context", [512, -1])
def test_effective_is_the_body_of_a_load_with_the_same_options(server: LemonbusServer, context: int) -> None:
    def process() -> Any:
        (shown,) = [each for each in server.health()["all_models_loaded"] if each["model_name"] == CHAT]
        return shown["pid"]

    effective = ask(server, "POST", {"ctx_size": context}).json()["effective"]
    assert effective["ctx_size"] == context
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    first = process()
    ask(server, "DELETE")
    assert server.client.post("/v1/load", effective).status == 200
    assert process() == first
    assert ask(server, "GET").json()["loaded_options"]["ctx_size"] == context


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"ctx_size": "many"}, "ctx_size"),
        ({"ctx_size": -2}, "ctx_size"),
        ({"ctx_size": 1.5}, "ctx_size"),
        ({"llamacpp_backend": "steam"}, "llamacpp_backend"),
        ({"llamacpp_args": "--port 80"}, "llamacpp_args"),
        ({"llamacpp_args": "--threads many"}, "llamacpp_args"),
        ({"whispercpp_args": "--convert"}, "whispercpp_args"),
        ({"pinned": True}, "pinned"),
        ({"steps": 4}, "steps"),
    ],
)
def test_wrong_options_are_refused_as_by_a_load_and_nothing_is_saved(
    server: LemonbusServer, options: dict[str, Any], param: str
) -> None:
    for answer in (
        ask(server, "POST", {"threads": 2, **options}),
        *([server.client.post("/v1/load", {"model_name": CHAT, **options})] if param != "pinned" else []),
    ):
        assert (answer.status, answer.error["type"], answer.error["param"]) == (400, "invalid_request", param), answer
    assert CHAT not in saved(server)


def test_an_unknown_model(server: LemonbusServer) -> None:
    for method, body in (("GET", None), ("POST", {"ctx_size": 512}), ("DELETE", None)):
        answer = ask(server, method, body, model="No/Such-Model")
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")


def test_they_need_a_key_for_administrators(keyed_server: LemonbusServer) -> None:
    for method, body in (("GET", None), ("POST", {"ctx_size": 512}), ("DELETE", None)):
        assert ask(keyed_server, method, body).status == 401
