"""POST /v1/unload: one model, all models, and models that are not loaded."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
SUCCESS = {"status": "success", "message": "Model unloaded successfully"}


@pytest.fixture(scope="module")
def server(changing_server: LemonbusServer) -> LemonbusServer:
    assert changing_server.client.post("/v1/unload", {}).status == 200
    return changing_server


def loaded(server: LemonbusServer) -> set[str]:
    return {model["model_name"] for model in server.health()["all_models_loaded"]}


def load_both(server: LemonbusServer) -> None:
    for model in (CHAT, LOOP):
        assert server.client.post("/v1/load", {"model_name": model}).status == 200
    assert loaded(server) == {CHAT, LOOP}


def test_one_model(server: LemonbusServer) -> None:
    load_both(server)
    answer = server.client.post("/v1/unload", {"model_name": CHAT})
    assert answer.status == 200
    assert answer.json().items() >= SUCCESS.items()
    assert loaded(server) == {LOOP}
    assert server.engine_now(CHAT) is None, "its process is gone"


def test_all_without_body_and_content_type_also_when_nothing_is_loaded(server: LemonbusServer) -> None:
    load_both(server)
    for prefix in ("/v1", "/api/v1", "/v1"):
        answer = server.client.start("POST", f"{prefix}/unload").finish()
        assert answer.status == 200
        assert answer.json().items() >= SUCCESS.items()
        assert loaded(server) == set()


@pytest.mark.parametrize("model", ["Qwen3-0.6B-GGUF", "No-Such-Model", "owner/repo:Q4"])
def test_a_model_that_is_not_loaded(server: LemonbusServer, model: str) -> None:
    answer = server.client.post("/v1/unload", {"model_name": model})
    body = answer.json()
    assert answer.status == 404
    assert (body["status"], body["message"]) == ("error", f"Model not found: {model}")
    assert (body["error"]["type"], body["error"]["code"]) == ("not_found", "model_not_found")
    assert body["error"]["message"] == body["message"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"null", b'"m"', b'{"model_name": ""}', b'{"model_name": 1}', b'{"modelname": "x"}'],
)
def test_a_malformed_body_unloads_nothing(server: LemonbusServer, body: bytes) -> None:
    load_both(server)
    answer = server.client.post("/v1/unload", body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert loaded(server) == {CHAT, LOOP}


def test_running_requests_end_first(server: LemonbusServer) -> None:
    load_both(server)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=600)
    stream.until(lambda seen: seen.events)
    assert server.client.post("/v1/unload", {"model_name": LOOP}).status == 200
    assert stream.finish().events[-1].data == "[DONE]"
    assert loaded(server) == {CHAT}


def test_unload_ends_a_load_that_runs(start_server: StartServer) -> None:
    server = start_server("tiny-chat", "tiny-loop", max_loaded_models=1, load=[LOOP])
    engine = server.engine_pid(LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=6000)
    stream.until(lambda seen: seen.events)
    with processes.stopped(engine):
        load = server.client.start("POST", "/v1/load", {"model_name": CHAT})
        request = server.client.start_chat(CHAT)
        wait_for(lambda: server.state()["queued"] == 1 and server.model_state(LOOP) == "draining", "both wait")

        answer = server.client.post("/v1/unload", {"model_name": CHAT})
        assert answer.status == 200
        assert answer.json().items() >= SUCCESS.items()
        for refused in (load.finish(), request.finish()):
            assert (refused.status, refused.error["code"]) == (503, "unloaded")
        assert server.model_state(LOOP) == "ready", "no request needs its memory any more"
    stream.hang_up()
    assert server.client.chat(LOOP, max_tokens=2).status == 200
    assert server.engine_now(CHAT) is None
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 404
