"""Mullama's management requests against a real server and a hub on loopback, in the order of its document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compatibility.hub_server import registered
from tests.support.clients.http_exchange import HttpExchange
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LLAMA = "llama3.2:1b"
REPOSITORY = "bartowski/Llama-3.2-1B-Instruct-GGUF"
LIST_FIELDS = {"alias", "path", "parameters", "context_size", "gpu_layers", "is_default", "active_requests"}


def ask(server: LemonbusServer, method: str, path: str, body: Any = None) -> HttpExchange:
    return server.client.start(method, path, body).finish()


def is_error(answer: HttpExchange, status: int, kind: str, code: str = "") -> None:
    error = answer.json()["error"]
    assert (answer.status, error["type"], error["code"]) == (status, kind, code or kind), answer
    assert isinstance(error["message"], str)


def lines(answer: HttpExchange) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.body.splitlines()]


def pull(server: LemonbusServer, name: str = LLAMA) -> dict[str, Any]:
    answer = ask(server, "POST", "/api/models/pull", {"name": name})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def test_a_model_is_pulled_loaded_used_unloaded_and_deleted(server: LemonbusServer) -> None:
    pulled = pull(server)
    assert (pulled["status"], pulled["model"], pulled["repo"]) == ("success", LLAMA, REPOSITORY)
    listed = next(each for each in server.client.get("/api/models").json()["models"] if each["alias"] == LLAMA)
    assert set(listed) >= LIST_FIELDS
    assert listed["path"].endswith("Llama-3.2-1B-Instruct-Q4_K_M.gguf")
    assert (listed["loaded"], listed["is_default"], listed["size_bytes"]) == (False, False, pulled["size_bytes"])

    loaded = ask(server, "POST", "/api/models/load", {"alias": LLAMA, "set_default": True, "context_size": 512})
    assert loaded.json() == {
        "status": "loaded",
        "alias": LLAMA,
        "parameters": listed["parameters"],
        "context_size": 512,
        "gpu_layers": 0,
        "is_default": True,
    }
    is_error(ask(server, "POST", "/api/models/load", {"alias": LLAMA}), 409, "conflict")
    assert server.client.get("/api/system/status").json()["default_model"] == LLAMA

    shown = server.client.get(f"/api/models/{LLAMA}").json()
    assert (shown["alias"], shown["architecture"], shown["is_default"]) == (LLAMA, "LlamaForCausalLM", True)
    assert shown["vocab_size"] > 100
    assert set(shown["capabilities"]) == {"vision", "tools", "thinking", "json"}

    assert ask(server, "POST", f"/api/models/{LLAMA}/unload").json() == {"status": "unloaded", "alias": LLAMA}
    is_error(ask(server, "POST", f"/api/models/{LLAMA}/unload"), 409, "conflict")
    assert ask(server, "DELETE", f"/api/models/{LLAMA}").json()["status"] == "deleted"
    is_error(server.client.get(f"/api/models/{LLAMA}"), 404, "not_found", "model_not_found")
    assert server.client.get("/api/system/status").json()["default_model"] is None


def test_a_deleted_model_does_not_answer_even_if_its_repository_was_pulled(server: LemonbusServer) -> None:
    source = next(each["from"] for each in server.client.get("/api/defaults").json() if each["name"] == "llama3.2-1b")
    assert source == f"hf:{REPOSITORY}"
    pull(server, source)
    assert [each["alias"] for each in server.client.get("/api/models").json()["models"]].count(LLAMA) == 1
    answer = ask(server, "DELETE", f"/api/models/{LLAMA}").json()
    assert (answer["status"], answer["files_removed"] > 0, answer["kept_for"]) == ("deleted", True, [])
    for name in (LLAMA, source, REPOSITORY):
        is_error(server.client.get(f"/api/models/{name}"), 404, "not_found", "model_not_found")


def test_deleting_a_model_whose_files_another_one_uses_is_a_conflict(server: LemonbusServer) -> None:
    pull(server)
    copy = {"model_name": "user.Copy", "checkpoint": f"{REPOSITORY}:Q4_K_M", "recipe": "llamacpp"}
    assert ask(server, "POST", "/v1/pull", copy).status == 200
    refused = ask(server, "DELETE", f"/api/models/{LLAMA}")
    is_error(refused, 409, "conflict")
    assert "user.Copy" in refused.json()["error"]["message"]
    assert server.client.get(f"/api/models/{LLAMA}").status == 200
    assert ask(server, "DELETE", "/api/models/user.Copy").status == 200
    assert ask(server, "DELETE", f"/api/models/{LLAMA}").json()["files_removed"] > 0
    is_error(server.client.get(f"/api/models/{LLAMA}"), 404, "not_found", "model_not_found")


def test_the_default_model_has_one_name(server: LemonbusServer) -> None:
    pull(server)
    assert ask(server, "POST", "/api/defaults/llama3.2-1b/use").status == 200
    generated = ask(server, "POST", "/api/generate", {"prompt": "Hi", "max_tokens": 3}).json()
    assert generated["model"] == LLAMA
    status = server.client.get("/api/system/status").json()
    shown = [each["alias"] for each in server.client.get("/api/models").json()["models"] if each["is_default"]]
    assert (status["default_model"], shown) == (LLAMA, [LLAMA])

    def metrics() -> list[str]:
        return server.client.get("/metrics?mullama=true").body.decode().splitlines()

    speed = f'mullama_tokens_per_second{{model="{LLAMA}"}}'
    wait_for(lambda: any(line.startswith(speed) for line in metrics()), "the speed of the request is counted")
    assert any(f'mullama_model_parameters{{model="{LLAMA}"}}' in line for line in metrics())
    assert any('lemonbus_model_parameters{model="llama3.2-1b"}' in line for line in metrics())


def test_a_streamed_pull_ends_with_success(server: LemonbusServer, hub: Hub) -> None:
    hub.rate = 400_000
    found = lines(ask(server, "POST", "/api/models/pull", {"name": LLAMA, "stream": True}))
    downloading = [line for line in found if line["status"] == "downloading"]
    assert downloading
    assert [line["progress"] for line in downloading] == sorted(line["progress"] for line in downloading)
    assert all(0 <= line["progress"] <= 1 for line in downloading)
    assert downloading[-1]["downloaded_bytes"] == downloading[-1]["total_bytes"]
    assert found[len(downloading) :] == [
        {"status": "verifying"},
        {"status": "success", "model": LLAMA, "done": True},
    ]


def test_a_checkpoint_that_is_in_no_catalogue(server: LemonbusServer, hub: Hub) -> None:
    checkpoint = "hf:shop/Ours-GGUF:Q4_K_M"
    assert pull(server, checkpoint)["repo"] == "shop/Ours-GGUF"
    assert "shop/Ours-GGUF:Q4_K_M" in [each["alias"] for each in server.client.get("/api/models").json()["models"]]
    answer = ask(server, "POST", "/api/generate", {"model": checkpoint, "prompt": "Hi", "max_tokens": 1})
    assert answer.status == 200, answer
    assert ask(server, "DELETE", "/api/models/shop/Ours-GGUF:Q4_K_M").status == 200
    assert registered(server) == {}
    assert hub.transfers


def test_a_checkpoint_that_no_hub_has_is_forgotten(server: LemonbusServer) -> None:
    answer = ask(server, "POST", "/api/models/pull", {"name": "hf:shop/None-GGUF:Q4_0"})
    assert answer.status in {404, 502}, answer
    listed = server.client.get("/v1/models?show_all=true").json()["data"]
    assert "shop/None-GGUF:Q4_0" not in [each["id"] for each in listed]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "code"),
    [
        ("GET", "/api/models/unknown-model", None, 404, "not_found", "model_not_found"),
        ("POST", "/api/models/pull", {}, 400, "invalid_request", ""),
        ("POST", "/api/models/pull", {"name": "unknown-model"}, 404, "not_found", "model_not_found"),
        ("POST", "/api/models/load", {"path": "/opt/models/custom.gguf"}, 400, "invalid_request", ""),
        ("POST", "/api/models/load", {"alias": "x", "path": "/etc/passwd"}, 400, "invalid_request", ""),
        ("POST", "/api/models/load", {"alias": "unknown-model"}, 404, "not_found", "model_not_found"),
        ("POST", "/api/models/extra.tiny-chat/unload", None, 409, "conflict", ""),
        ("POST", "/api/models/unknown-model/unload", None, 404, "not_found", "model_not_found"),
        ("DELETE", "/api/models/unknown-model", None, 404, "not_found", "model_not_found"),
        ("POST", "/api/defaults/unknown/use", None, 404, "not_found", ""),
        ("GET", "/api/nowhere", None, 404, "not_found", ""),
    ],
)
def test_documented_errors(
    server: LemonbusServer, method: str, path: str, body: Any, status: int, kind: str, code: str
) -> None:
    answer = ask(server, method, path, body)
    is_error(answer, status, kind, code)
    assert list(answer.json()) == ["error"]


def test_a_file_is_loaded_under_a_name(server: LemonbusServer) -> None:
    path = str(server.models / "tiny-chat.gguf")
    body = {"alias": "my-model", "path": path, "gpu_layers": 35, "context_size": 512, "set_default": False}
    answer = ask(server, "POST", "/api/models/load", body)
    assert answer.status == 200, answer
    loaded = answer.json()
    assert (loaded["alias"], loaded["context_size"], loaded["gpu_layers"]) == ("my-model", 512, 35)
    is_error(ask(server, "POST", "/api/models/load", body), 409, "conflict")
    assert server.client.chat("my-model", max_tokens=1).json()["model"] == "my-model"
    listed = next(each for each in server.client.get("/api/models").json()["models"] if each["alias"] == "my-model")
    assert (listed["path"], listed["loaded"]) == (path, True)
    assert ask(server, "POST", "/api/models/my-model/unload").status == 200
    is_error(ask(server, "DELETE", "/api/models/my-model"), 400, "invalid_request")
    other = {"alias": "extra.tiny-chat", "path": str(server.models / "tiny-embed.gguf")}
    is_error(ask(server, "POST", "/api/models/load", other), 409, "conflict")


def test_a_model_of_the_quick_start_becomes_the_default_and_comes_before_the_one_used_last(
    server: LemonbusServer,
) -> None:
    defaults = {each["name"]: each for each in server.client.get("/api/defaults").json()}
    assert defaults["llama3.2-1b"]["from"] == f"hf:{REPOSITORY}"
    assert defaults["deepseek-r1-7b"]["has_thinking"]
    for again in (False, True):
        used = ask(server, "POST", "/api/defaults/llama3.2-1b/use")
        assert (used.status, used.json()["status"], used.json()["is_default"]) == (200, "loaded", True), again
    assert server.client.chat("extra.tiny-chat", max_tokens=1).status == 200
    generated = ask(server, "POST", "/api/generate", {"prompt": "Hi", "max_tokens": 1})
    assert (generated.status, generated.json()["model"]) == (200, LLAMA)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    assert server.client.chat("extra.tiny-chat", max_tokens=1).status == 200
    assert ask(server, "POST", "/v1/chat/completions", body).json()["model"] == LLAMA
    assert ask(server, "DELETE", "/api/models/llama3.2-1b").status == 200
    assert ask(server, "POST", "/v1/chat/completions", body).json()["model"] == "extra.tiny-chat"


def test_the_servers_state(server: LemonbusServer) -> None:
    assert server.client.chat("extra.tiny-chat", max_tokens=2).status == 200
    # A worker may report the end of a request a moment after its answer.
    wait_for(lambda: server.client.get("/status").json()["active_requests"] == 0, "the request has ended")
    short = server.client.get("/status").json()
    assert (short["status"], short["models_loaded"]) == ("ok", 1)
    status = server.client.get("/api/system/status").json()
    assert set(status) == {
        *("version", "uptime_secs", "models_loaded", "http_endpoint", "ipc_endpoint", "default_model", "stats"),
    }
    assert status["http_endpoint"] == f"http://127.0.0.1:{server.port}"
    stats = status["stats"]
    assert stats["requests_total"] >= 1
    assert stats["tokens_generated"] >= 2
    assert 0 < stats["memory_used_bytes"] < stats["memory_total_bytes"]
    assert isinstance(stats["gpu_available"], bool)
