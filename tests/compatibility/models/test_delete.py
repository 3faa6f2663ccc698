"""POST /v1/delete: it unloads the model and removes the files that no other model uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.models import prompt_caches
from tests.compatibility.hub_server import (
    CPU,
    PHI,
    PROJECTOR,
    QWEN,
    HubServer,
    blobs,
    cached,
    ids,
    pull,
    registered,
)
from tests.support.clients.http_client import run_concurrently
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

OURS = {"model_name": "user.Ours", "checkpoint": "shop/Ours-GGUF:Q4_K_M", "recipe": "llamacpp"}
"""A checkpoint that is in no catalogue: no other model uses its files."""
NAME = str(OURS["model_name"])


def delete(server: LemonbusServer, name: str, prefix: str = "/v1") -> tuple[int, dict[str, object]]:
    answer = server.client.post(f"{prefix}/delete", {"model_name": name})
    assert str(server.home) not in answer.body.decode()
    return answer.status, answer.json()


def test_a_downloaded_model_is_deleted_under_every_prefix(server: LemonbusServer, folder: Path) -> None:
    assert pull(server, model_name=CPU)[0] == 200
    status, body = delete(server, CPU, "/api/v0")
    assert (status, body["status"], body["message"]) == (200, "success", f"Deleted model: {CPU}")
    assert (body["files_removed"], body["kept_for"]) == (4, [])
    assert not list((folder / "hf" / "hub").glob("models--*")), "nothing of the repository is left"
    assert CPU not in ids(server)
    for prefix in VERSION_PREFIXES:
        status, body = delete(server, CPU, prefix)
        assert (status, body["status"]) == (404, "error")


def test_a_loaded_model_is_unloaded_first_and_its_prompt_caches_are_removed(server: LemonbusServer) -> None:
    cache_dir = str(server.home / "cache")
    others = [
        prompt_caches.root(cache_dir) / f"{prompt_caches.model_digest(name)}-{'0' * 32}-1" for name in (QWEN, "other")
    ]
    for folder in others:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text("{}")
    options = {"model_name": QWEN, "keep_prompt_cache": True}
    assert server.client.post("/v1/load", options).status == 200
    assert server.client.chat(QWEN, messages=[{"role": "user", "content": "long " * 50}], max_tokens=2).status == 200
    assert server.model_state(QWEN) == "ready"
    status, body = delete(server, QWEN)
    assert status == 200, body
    assert server.model_state(QWEN) == ""
    assert QWEN not in ids(server)
    assert prompt_caches.entries_of(cache_dir, QWEN) == []
    assert len(prompt_caches.entries_of(cache_dir, "other")) == 1, "no others are removed"
    assert server.client.chat(QWEN, max_tokens=2).status == 200, "a request downloads it again"


def test_running_requests_end_first_and_new_ones_are_refused(hub_server: HubServer) -> None:
    server = hub_server.server
    hub_server.install({"model_name": "user.Loop", "checkpoint": "shop/Loop-GGUF:Q4_0", "recipe": "llamacpp"})
    running = server.client.start_chat("user.Loop", stream=True, max_tokens=400).until(lambda each: each.events)
    deleting = server.client.start("POST", "/v1/delete", {"model_name": "user.Loop"})
    wait_for(lambda: server.client.chat("user.Loop", max_tokens=1).status in {404, 409}, "no request gets it any more")
    assert running.finish().done
    assert deleting.finish().status == 200
    assert server.client.chat("user.Loop", max_tokens=1).status == 404


def test_a_users_model_is_forgotten_with_its_options(
    hub_server: HubServer, server: LemonbusServer, folder: Path
) -> None:
    hub_server.install({**OURS, "mmproj": PROJECTOR})
    options = {"model_name": NAME, "ctx_size": 2048, "save_options": True}
    options_file = server.home / "state" / "recipe_options.json"
    options_file.parent.mkdir(exist_ok=True)
    options_file.write_text(json.dumps({NAME: {"ctx_size": options["ctx_size"]}, "extra.tiny-chat": {"ctx_size": 512}}))
    assert delete(server, NAME)[0] == 200
    assert registered(server) == {}
    assert set(json.loads(options_file.read_text())) == {"extra.tiny-chat"}
    assert cached(folder) == set()
    assert NAME not in ids(server, "?show_all=true")
    assert delete(server, NAME)[0] == 404


def test_files_that_another_model_uses_stay(hub_server: HubServer, server: LemonbusServer, folder: Path) -> None:
    with_projector = {**OURS, "model_name": "user.B", "mmproj": PROJECTOR}
    q8 = {**OURS, "model_name": "user.Q8", "checkpoint": "shop/Ours-GGUF:Q8_0"}
    hub_server.install({**OURS, "model_name": "user.A"}, with_projector, q8)
    assert len(cached(folder)) == blobs(folder) == 3
    status, body = delete(server, "user.B")
    assert (status, body["kept_for"], body["files_removed"]) == (200, ["user.A"], 1), body
    assert len(cached(folder)) == blobs(folder) == 2
    assert "user.A" in ids(server)
    assert delete(server, "user.A")[1]["files_removed"] == 1
    assert {path.rsplit("-", 1)[1] for path in cached(folder)} == {"Q8_0.gguf"}
    assert delete(server, "user.Q8")[0] == 200
    assert blobs(folder) == 0


def test_a_file_that_a_built_in_model_uses_stays(hub_server: HubServer, server: LemonbusServer, folder: Path) -> None:
    hub_server.install(PHI)
    status, body = delete(server, str(PHI["model_name"]))
    assert (status, body["kept_for"], body["files_removed"]) == (200, ["Phi-4-mini-instruct-GGUF"], 0)
    assert registered(server) == {}
    assert delete(server, "Phi-4-mini-instruct-GGUF")[0] == 200
    assert cached(folder) == set()


def test_files_of_other_programs_stay(hub_server: HubServer, server: LemonbusServer, folder: Path) -> None:
    hub_server.install(OURS)
    (snapshot,) = (folder / "hf" / "hub").glob("models--shop--Ours*/snapshots/*")
    (snapshot / "config.json").write_text("{}")
    assert delete(server, NAME)[0] == 200
    assert [path.rsplit("/", 1)[1] for path in cached(folder)] == ["config.json"]
    assert blobs(folder) == 0


def test_a_running_download_is_ended(server: LemonbusServer, hub: Hub, folder: Path) -> None:
    hub.hold_after = 100_000
    big = {"model_name": "user.Big", "checkpoint": "shop/Big-GGUF", "recipe": "llamacpp"}
    pulling = server.client.start("POST", "/v1/pull", big)
    assert hub.holding.wait(20)
    first, second = sorted(run_concurrently(2, lambda _: delete(server, "user.Big")[0]))
    assert first == 200
    assert second in {404, 409}
    answer = pulling.finish()
    assert answer.status == 409
    assert "deleted" in answer.json()["message"]
    assert registered(server) == {}
    assert blobs(folder) == 0
    assert server.state()["downloads"] == []
    reported = [(line["level"], line["event"]) for line in server.lines if line.get("model") == "user.Big"]
    assert ("info", "download stopped") in reported
    assert ("error", "download failed") not in reported, "the delete caused it"


def test_an_unregistered_checkpoint_is_deleted_by_its_name(server: LemonbusServer, folder: Path) -> None:
    checkpoint = "shop/Loop-GGUF:Q4_0"
    assert server.client.post("/v1/load", {"model_name": checkpoint}).status == 200
    assert checkpoint in ids(server)
    assert delete(server, checkpoint)[0] == 200
    assert cached(folder) == set()
    assert checkpoint not in ids(server, "?show_all=true")


def test_a_model_of_the_extra_directory_is_not_deleted(server: LemonbusServer) -> None:
    status, body = delete(server, "extra.tiny-chat")
    assert status == 400
    assert body["status"] == "error"
    assert "extra.tiny-chat" in ids(server)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model_name": "No-Such-Model"}, 404, "model_not_found"),
        ({"model_name": "user.No-Such-Model"}, 404, "model_not_found"),
        ({"model_name": QWEN}, 404, "model_not_found"),
        ({}, 400, "invalid_request"),
        ({"model_name": 5}, 400, "invalid_request"),
        ({"model_name": "../../etc/passwd"}, 404, "model_not_found"),
    ],
)
def test_mistakes(shared_server: LemonbusServer, body: dict[str, object], status: int, code: str) -> None:
    answer = shared_server.client.post("/v1/delete", body)
    assert answer.status == status, answer
    answer_body = answer.json()
    assert answer_body["status"] == "error"
    assert answer_body["message"] == answer_body["error"]["message"]
    assert answer_body["error"]["code"] == code
    assert shared_server.client.get("/v1/delete").status == 405


def test_many_deletions_at_once(hub_server: HubServer, server: LemonbusServer) -> None:
    hub_server.install(OURS)
    found = run_concurrently(4, lambda _: delete(server, NAME)[0])
    assert min(found) == 200
    assert set(found) <= {200, 404, 409}
    assert registered(server) == {}
