"""Which models of a real server are loaded, and for how long: idle times, pins, groups, and limits for the requests of a model."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, TALE, LOOP, EMBED = (f"extra.tiny-{name}" for name in ("chat", "tale", "loop", "embed"))


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server(
        *("tiny-chat", "tiny-tale", "tiny-loop", "tiny-embed"),
        models={LOOP: {"concurrency": 1, "queue": 1}},
        groups={"pair": {"models": [CHAT, TALE], "swap": True}},
    )


@pytest.fixture
def server(module_server: LemonbusServer) -> LemonbusServer:
    """The server with nothing loaded."""
    assert module_server.client.post("/v1/unload", {}).status == 200
    return module_server


def loaded(server: LemonbusServer, model: str) -> dict[str, Any] | None:
    """A loaded model as health shows it."""
    return next((each for each in server.health()["all_models_loaded"] if each["model_name"] == model), None)


def load(server: LemonbusServer, model: str, **fields: object) -> dict[str, Any]:
    answer = server.client.post("/v1/load", {"model_name": model, **fields})
    assert answer.status == 200, answer
    shown = loaded(server, model)
    assert shown is not None
    return shown


def wait_gone(server: LemonbusServer, model: str) -> None:
    wait_for(lambda: not server.model_state(model), f"{model} is unloaded")


def test_a_model_whose_slots_take_no_memory_has_more_of_them(server: LemonbusServer) -> None:
    for model in (CHAT, EMBED):
        load(server, model)
    slots = {model["model_name"]: model["slots"] for model in server.state()["models"]}
    assert (slots[CHAT], slots[EMBED]) == (4, 16)


def test_num_ctx_loads_with_a_larger_context_and_never_with_a_smaller_one(server: LemonbusServer) -> None:
    def ask(num_ctx: int, **fields: object) -> dict[str, Any]:
        body = {"model": CHAT, "options": {"num_ctx": num_ctx, "num_predict": 2}, **fields}
        answer = server.client.post("/api/generate", body)
        assert answer.status == 200, answer
        shown = loaded(server, CHAT)
        assert shown is not None
        (running,) = server.client.get("/api/ps").json()["models"]
        return {"context": running["context_length"], "pid": shown["pid"]}

    first = ask(10_240, prompt="hi")
    assert first["context"] == 10_240, "the setting is 8192"
    assert ask(512, prompt="hi") == ask(10_240, prompt="hi") == first
    second = ask(12_288, prompt="hi")
    assert (second["context"], second["pid"] == first["pid"]) == (12_288, False)
    assert ask(10_240, prompt="hi") == second
    third = ask(10**6, prompt="")
    assert third["context"] == 32_768, "what it was trained for"
    assert ask(10**6, prompt="hi") == third
    assert server.client.chat(CHAT).status == 200
    assert loaded(server, CHAT) is not None


def test_a_model_leaves_when_it_was_idle_for_its_ttl(server: LemonbusServer) -> None:
    shown = load(server, CHAT, ttl=600)
    assert shown["ttl"] == 600
    assert shown["expires_at"] == pytest.approx(shown["last_use"] + 600, abs=0.5)
    (running,) = server.client.get("/api/ps").json()["models"]
    assert not running["expires_at"].startswith("9999")
    assert server.client.post("/v1/load", {"model_name": CHAT, "ttl": 1}).status == 200
    wait_gone(server, CHAT)
    assert server.client.chat(CHAT).status == 200, "a request loads it again"
    again = loaded(server, CHAT)
    assert again is not None
    assert (again["ttl"], again["expires_at"]) == (None, None), "what the load asked for ended with the unload"


def test_keep_alive_of_a_request_says_how_long_its_model_stays(server: LemonbusServer) -> None:
    ask = {"model": CHAT, "prompt": "hi"}
    assert server.client.post("/api/generate", {**ask, "keep_alive": "10m"}).status == 200
    server.assert_idle()
    shown = loaded(server, CHAT)
    assert shown is not None
    assert (shown["ttl"], round(shown["expires_at"] - time.time(), -2)) == (600, 600)
    assert server.client.post("/api/generate", {**ask, "keep_alive": -1}).status == 200
    (running,) = server.client.get("/api/ps").json()["models"]
    assert running["expires_at"].startswith("9999")
    assert (loaded(server, CHAT) or {})["ttl"] is None
    assert server.client.post("/api/generate", {**ask, "keep_alive": 0}).status == 200
    wait_gone(server, CHAT)


def test_a_pinned_model_keeps_others_out_and_is_named(server: LemonbusServer) -> None:
    load(server, CHAT)
    assert server.client.post("/v1/pin", {"model_name": CHAT, "pinned": True}).json()["pinned"] is True
    shown, health = loaded(server, CHAT), server.health()
    assert shown is not None
    assert (shown["pinned"], health["pinned_models"]["llm"]) == (True, 1)
    refused = server.client.chat(TALE)
    assert (refused.status, refused.error["code"]) == (409, "all_pinned")
    assert CHAT in refused.error["detail"], "for administrators"
    assert refused.headers["x-should-retry"] == "false"
    assert server.client.post("/internal/pin", {"model": CHAT, "pinned": False}).status == 200
    assert server.client.chat(TALE).status == 200
    assert not loaded(server, CHAT), "the two take turns"


def test_an_administrator_unloads_a_pinned_model(server: LemonbusServer) -> None:
    load(server, CHAT, pinned=True, ttl=0.5)
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    assert server.client.post("/v1/pin", {"model_name": CHAT, "pinned": True}).status == 404
    assert server.client.post("/v1/pin", {"model_name": "extra.nothing", "pinned": True}).status == 404
    assert not load(server, CHAT)["pinned"]


def test_models_of_a_group_take_turns_and_others_stay(server: LemonbusServer) -> None:
    load(server, EMBED)
    engine = server.engine_pid(EMBED)
    for model in (CHAT, TALE):
        assert server.client.chat(model).status == 200
        names = {each["model_name"] for each in server.health()["all_models_loaded"]}
        assert names == {EMBED, model}
    assert server.engine_pid(EMBED) == engine


def test_one_request_runs_one_waits_and_the_next_is_refused(server: LemonbusServer) -> None:
    load(server, LOOP)
    with processes.stopped(server.engine_pid(LOOP)):  # none of them ends meanwhile
        stream = server.client.start_chat(LOOP, stream=True, max_tokens=8000)
        wait_for(lambda: server.state()["granted"] == 1, "the first one runs")
        waiting = server.client.start_chat(LOOP, max_tokens=1)
        wait_for(lambda: server.state()["queued"] == 1, "the second one waits, although the engine has free slots")
        shown = loaded(server, LOOP)
        assert shown is not None
        assert (shown["is_busy"], shown["expires_at"]) == (True, None)
        refused = server.client.chat(LOOP, max_tokens=1)
        assert (refused.status, refused.error["code"]) == (503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        (model,) = server.state()["models"]
        assert (model["slots"], model["granted"]) == (1, 1)
    stream.hang_up()
    assert waiting.finish().status == 200
    server.assert_idle()


def test_health_and_lists_tell_of_a_loaded_model(server: LemonbusServer) -> None:
    shown = load(server, CHAT, ctx_size=1024)
    assert shown["pid"] == server.engine_pid(CHAT)
    assert any(word.endswith("tiny-chat.gguf") for word in shown["launch_command"])
    assert not shown["is_busy"]
    one = wait_for(lambda: with_context(server.client.get(f"/v1/models/{CHAT}").json()), "its header was read")
    listed = {each["id"]: each for each in server.client.get("/v1/models").json()["data"]}
    assert one["context_length"] == listed[CHAT]["context_length"] == 1024
    assert one["max_context_window"] == listed[CHAT]["max_context_window"]
    assert listed[EMBED]["context_length"] == server.settings.ctx_size, "it is not loaded"


def with_context(model: dict[str, Any]) -> dict[str, Any] | None:
    return model if "max_context_window" in model else None
