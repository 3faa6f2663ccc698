"""``GET health`` as documents 000, 001 and 002 show it, and ``/live``, of a real server."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import simple_websocket

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol import RELEASE
from tests.compatibility.field_paths import missing
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP, EMBED = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-embed"
MODEL = ["model_name", "checkpoint", "last_use", "type", "device", "recipe", "recipe_options", "backend_url"]
TYPES = ("audio", "embedding", "image", "llm", "reranking", "tts")
LEMONADE = [
    *("status", "version", "websocket_port", "model_loaded", "all_models_loaded"),
    *(f"all_models_loaded[].{field}" for field in MODEL),
    *(f"max_models.{kind}" for kind in TYPES),
]


@pytest.fixture
def server(changing_server: LemonbusServer) -> LemonbusServer:
    """An llm and an embedding model are loaded, as the document's example has them."""
    options = {"model_name": EMBED, "ctx_size": 4096, "llamacpp_args": "--no-mmap"}
    assert changing_server.client.post("/v1/load", options).status == 200
    assert changing_server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    return changing_server


def models(health: Any) -> dict[str, Any]:
    return {model["model_name"]: model for model in health["all_models_loaded"]}


# GET /v1/health


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_every_documented_field_is_there(server: LemonbusServer, prefix: str) -> None:
    health = server.client.get(f"{prefix}/health").json()
    assert missing(health, [*LEMONADE, "checkpoint_loaded", "max_models.transcription"]) == []
    assert (health["status"], health["version"]) == ("ok", RELEASE)
    assert set(health["max_models"]) == {*TYPES, "transcription"}
    assert set(health["max_models"].values()) == {server.settings.max_loaded_models}


def test_the_values_of_loaded_models(server: LemonbusServer) -> None:
    found = models(server.health())
    chat, embed = found[CHAT], found[EMBED]
    assert (chat["type"], chat["device"], chat["recipe"]) == ("llm", "cpu", "llamacpp")
    assert (embed["type"], embed["device"], embed["recipe"]) == ("embedding", "cpu", "llamacpp")
    assert embed["recipe_options"].items() >= {"ctx_size": 4096, "llamacpp_args": "--no-mmap"}.items()
    assert chat["recipe_options"]["ctx_size"] == server.settings.ctx_size
    assert chat["checkpoint"]


def test_a_backend_answers_at_the_reported_address(server: LemonbusServer) -> None:
    for model in models(server.health()).values():
        host, port, path = model["backend_url"].removeprefix("http://").replace("/", ":/", 1).split(":")
        assert (host, path) == ("127.0.0.1", "/v1")
        assert RawHttpClient(int(port)).get("/health").status == 200


def test_the_model_used_last_is_the_one_that_is_loaded(server: LemonbusServer) -> None:
    def loaded() -> Any:
        health = server.health()
        assert health["checkpoint_loaded"] == models(health)[health["model_loaded"]]["checkpoint"]
        return health["model_loaded"]

    assert server.client.post("/v1/embeddings", {"model": EMBED, "input": "a"}).status == 200
    wait_for(lambda: loaded() == EMBED, "the embedding model was used last")
    before = models(server.health())[CHAT]["last_use"]
    assert server.client.chat(CHAT).status == 200
    wait_for(lambda: loaded() == CHAT, "the chat model was used last")
    assert before < models(server.health())[CHAT]["last_use"] <= time.time()


def test_a_model_that_is_working_is_in_use_now(server: LemonbusServer) -> None:
    assert server.client.chat(LOOP, max_tokens=1).status == 200
    engine = server.engine_pid(LOOP)
    running = server.client.start_chat(LOOP, stream=True, max_tokens=6000)
    running.until(lambda it: len(it.events) > 3)
    with processes.stopped(engine):
        assert server.client.chat(CHAT).status == 200
        wait_for(lambda: server.health()["model_loaded"] == LOOP, "only it runs")
        asked = time.time()
        assert asked - 1.0 < models(server.health())[LOOP]["last_use"] <= time.time()
    running.hang_up()


def test_websockets_are_on_the_port_that_is_told(server: LemonbusServer) -> None:
    reported = server.health()["websocket_port"]
    socket = simple_websocket.Client.connect(f"ws://127.0.0.1:{reported}/logs/stream")
    socket.send('{"type": "logs.subscribe", "after_seq": null}')
    first = json.loads(socket.receive(timeout=10) or "{}")
    socket.close()
    assert first["type"] == "logs.snapshot"


def test_nothing_is_loaded(unloaded_server: LemonbusServer) -> None:
    health = unloaded_server.health()
    assert (health["status"], health["model_loaded"], health["checkpoint_loaded"]) == ("ok", None, None)
    assert health["all_models_loaded"] == []


# GET /live, HEAD /live, and where it is not


def test_live_is_only_at_the_root(changing_server: LemonbusServer) -> None:
    assert changing_server.client.get("/live").body == b'{"status":"ok"}'
    head = changing_server.client.start("HEAD", "/live").finish()
    assert (head.status, head.body) == (200, b"")
    for prefix in VERSION_PREFIXES:
        answer = changing_server.client.get(f"{prefix}/live")
        assert (answer.status, answer.json()["status"], answer.error["type"]) == (404, "error", "not_found")
        assert answer.json()["message"] == answer.error["message"]


def test_live_answers_while_the_supervisor_does_not(changing_server: LemonbusServer) -> None:
    with processes.stopped(changing_server.supervisor_pid):
        assert changing_server.client.get("/live", patience=5.0).body == b'{"status":"ok"}'
