"""POST /v1/pull: models of the catalogue, models that are registered first, the stream, and every mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.hub_server import CPU, PHI, PROJECTOR, HubServer, cached, ids, pull, registered
from tests.support.clients.http_client import run_concurrently
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

PREFIXES = ["/v1", "/api/v1", "/v0", "/api/v0"]


@pytest.fixture
def unchanged_server(hub_server: HubServer) -> Iterator[LemonbusServer]:
    """The server for requests that must change nothing."""
    yield hub_server.server
    assert registered(hub_server.server) == {}
    assert not hub_server.hub.transfers


def test_a_registered_model_is_installed(server: LemonbusServer, folder: Path) -> None:
    status, body = pull(server, model_name=CPU)
    assert (status, body["status"], body["message"]) == (200, "success", f"Installed model: {CPU}")
    assert CPU in ids(server)
    assert len(cached(folder)) == 4
    again = server.client.post("/api/v1/pull", {"model_name": CPU})
    assert (again.status, again.json()["message"]) == (200, f"Installed model: {CPU}")


def test_a_model_is_registered_and_installed(server: LemonbusServer, hub: Hub) -> None:
    status, body = pull(server, **PHI)
    assert (status, body["status"], body["message"]) == (200, "success", "Installed model: user.Phi-4-Mini-GGUF")
    item = registered(server)["Phi-4-Mini-GGUF"]
    assert item.items() >= {"checkpoint": PHI["checkpoint"], "recipe": "llamacpp", "labels": ["custom"]}.items()
    assert "user.Phi-4-Mini-GGUF" in ids(server)
    assert [name for name, _ in hub.transfers] == ["Phi-4-mini-instruct-Q4_K_M.gguf"]
    answer = server.client.chat("user.Phi-4-Mini-GGUF", max_tokens=2)
    assert answer.status == 200
    assert answer.json()["model"] == "user.Phi-4-Mini-GGUF"


def test_the_other_forms_of_a_checkpoint_mean_the_same(server: LemonbusServer) -> None:
    forms: list[dict[str, Any]] = [
        {"checkpoint": f"https://huggingface.co/{PHI['checkpoint'].partition(':')[0]}:Q4_K_M"},
        {"checkpoints": {"main": PHI["checkpoint"]}},
    ]
    expected = {"checkpoint": PHI["checkpoint"], "recipe_options": {"ctx_size": 768}}
    for form in forms:
        body = {"model_name": "user.Form", "recipe": "llamacpp", **form, "recipe_options": {"ctx_size": 768}}
        status, answer = pull(server, **body)
        assert status == 200, answer
        assert registered(server)["Form"].items() >= expected.items()
    assert server.client.post("/v1/load", {"model_name": "user.Form"}).status == 200
    (shown,) = [each for each in server.health()["all_models_loaded"] if each["model_name"] == "user.Form"]
    assert shown["recipe_options"]["ctx_size"] == 768
    by_address = server.client.get(f"/v1/pull/variants?checkpoint=https://hf.co/{PHI['checkpoint'].partition(':')[0]}")
    assert (by_address.status, by_address.json()["suggested_name"]) == (200, "Phi-4-mini-instruct-GGUF")


def test_switches_become_labels(server: LemonbusServer) -> None:
    body = {**PHI, "model_name": "user.Labels", "mmproj": PROJECTOR}
    switches = dict.fromkeys(("reasoning", "vision", "embedding", "reranking"), True)
    assert pull(server, **body, **switches)[0] == 200
    shown = server.client.get("/v1/models/user.Labels").json()
    assert set(shown["labels"]) >= {"reasoning", "vision", "embeddings", "reranking"}
    assert registered(server)["Labels"]["mmproj"] == PROJECTOR


def test_a_projector_that_is_not_in_the_repository(server: LemonbusServer, folder: Path) -> None:
    status, body = pull(server, **PHI, vision=True, mmproj="mmproj-absent.gguf")
    assert (status, body["error"]["code"], body["error"]["param"]) == (404, "checkpoint_not_found", "mmproj")
    assert "mmproj-absent.gguf" in body["message"]
    assert registered(server) == {}
    assert PHI["model_name"] not in ids(server, "?show_all=true")
    assert cached(folder) == set()


def stream(server: LemonbusServer, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    answer = server.client.post("/v1/pull", {**body, "stream": True})
    assert answer.status == 200, answer
    return [(event.name, event.json()) for event in answer.messages]


def test_the_stream_has_the_documents_events(server: LemonbusServer, hub: Hub) -> None:
    hub.rate = 400_000
    events = stream(server, **PHI, mmproj=PROJECTOR)
    assert {name for name, _ in events} == {"progress", "complete"}
    assert events[-1] == ("complete", {"file_index": 2, "total_files": 2, "percent": 100})
    first = events[0][1]
    kinds = {"file": str, "file_index": int, "total_files": int, "bytes_downloaded": int, "bytes_total": int}
    assert all(isinstance(first[key], kind) for key, kind in kinds.items())
    assert first["file_index"] == 1
    assert 0 <= first["percent"] <= 100
    assert events[-2][1]["percent"] == 100
    assert "Phi-4-Mini-GGUF" in registered(server)


def test_a_stream_that_fails_ends_with_the_message(server: LemonbusServer) -> None:
    events = stream(server, model_name="user.Missing", checkpoint="acme/Missing-GGUF:Q4_K_M", recipe="llamacpp")
    name, data = events[-1]
    assert name == "error"
    assert isinstance(data["error"], str)
    assert "acme/Missing-GGUF" in data["error"]
    assert {"code", "request_id"} <= set(data)
    assert "complete" not in {name for name, _ in events}
    assert registered(server) == {}


@pytest.mark.parametrize(
    ("checkpoint", "loaded"),
    [
        ("acme/Missing-GGUF:Q4_K_M", False),
        ("unsloth/Phi-4-mini-instruct-GGUF:Q1_Z", True),
    ],
)
def test_a_file_that_the_hub_does_not_have_is_404_and_final(
    server: LemonbusServer, checkpoint: str, loaded: bool
) -> None:
    body = {"model_name": "user.Missing", "checkpoint": checkpoint, "recipe": "llamacpp"}
    answer = server.client.post("/v1/pull", body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "checkpoint_not_found", "checkpoint")
    assert checkpoint.partition(":")[0] in answer.error["message"]
    assert (answer.headers["x-should-retry"], answer.headers.get("retry-after")) == ("false", None)
    if loaded:
        answer = server.client.post("/v1/load", {"model_name": checkpoint})
        assert (answer.status, answer.error["code"]) == (404, "checkpoint_not_found")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model_name": "No-Such-Model"}, 404, "model_not_found", "model_name"),
        ({"model": "user.No-Such-Model"}, 404, "model_not_found", "model"),
        ({**PHI, "model_name": "Phi-4-Mini-GGUF-x"}, 400, "invalid_request", "model_name"),
        ({**PHI, "model_name": CPU}, 400, "invalid_request", "model_name"),
        ({}, 400, "invalid_request", "model_name"),
        ({"checkpoint": PHI["checkpoint"], "recipe": "llamacpp"}, 400, "invalid_request", "model_name"),
        ({"model_name": "user.NoRecipe", "checkpoint": "acme/X-GGUF:Q4_K_M"}, 400, "invalid_request", "recipe"),
        ({"model_name": "user.NoCheckpoint", "recipe": "llamacpp"}, 400, "invalid_request", "checkpoint"),
        ({"model_name": "user.X", "vision": True}, 400, "invalid_request", "checkpoint"),
        ({"model_name": "user.X", "mmproj": PROJECTOR}, 400, "invalid_request", "checkpoint"),
        ({"model": "Phi", "checkpoint": "a/b", "recipe": "llamacpp"}, 400, "invalid_request", "model"),
        ({**PHI, "recipe": "abacus"}, 400, "invalid_request", "recipe"),
        ({**PHI, "recipe": 5}, 400, "invalid_request", "recipe"),
        ({**PHI, "checkpoint": "noslash"}, 400, "invalid_request", "checkpoint"),
        ({**PHI, "checkpoint": "../../etc:x"}, 400, "invalid_request", "checkpoint"),
        ({**PHI, "checkpoint": ["a/b"]}, 400, "invalid_request", "checkpoint"),
        ({**PHI, "vision": "yes"}, 400, "invalid_request", "vision"),
        ({**PHI, "stream": 1}, 400, "invalid_request", "stream"),
        ({**PHI, "checkpoints": ["a/b"]}, 400, "invalid_request", "checkpoints"),
        ({**PHI, "checkpoints": {"main": 5}}, 400, "invalid_request", "checkpoints"),
        ({**PHI, "recipe_options": {"ctx_size": "x"}}, 400, "invalid_request", "ctx_size"),
        ({**PHI, "checkpoint": "https://huggingface.co/o/r/blob/v2/a"}, 400, "invalid_request", "checkpoint"),
        ({**PHI, "mmproj": "../x.gguf"}, 400, "invalid_request", "mmproj"),
        ({**PHI, "model_name": "user."}, 400, "invalid_request", "model_name"),
        ({**PHI, "model_name": "user.../../x"}, 400, "invalid_request", "model_name"),
        ({**PHI, "model_name": "user.a\u0007b"}, 400, "invalid_request", "model_name"),
    ],
)
def test_mistakes(
    unchanged_server: LemonbusServer, prefix: str, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = unchanged_server.client.post(f"{prefix}/pull", body)
    assert answer.status == status, answer
    answer_body = answer.json()
    assert answer_body["status"] == "error"
    assert answer_body["message"] == answer_body["error"]["message"]
    assert (answer_body["error"]["code"], answer_body["error"]["param"]) == (code, param)
    assert str(unchanged_server.home) not in answer.body.decode()


def test_the_callers_mistakes_have_a_status_in_a_stream_too(unchanged_server: LemonbusServer) -> None:
    assert unchanged_server.client.post("/v1/pull", {**PHI, "recipe": "abacus", "stream": True}).status == 400
    assert unchanged_server.client.post("/v1/pull", {"model_name": "No-Such-Model", "stream": True}).status == 404


def test_another_checkpoint_under_the_same_name_is_a_conflict(server: LemonbusServer) -> None:
    assert pull(server, **PHI)[0] == 200
    before = registered(server)
    for change in (
        {"checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q8_0"},
        {"checkpoint": "shop/Other-GGUF:Q4_0"},
        {"mmproj": PROJECTOR},
        {"checkpoint": "shop/Onnx", "recipe": "oga-cpu"},
    ):
        status, body = pull(server, **{**PHI, **change})
        assert (status, body["error"]["type"]) == (409, "conflict"), body
        assert body["error"]["param"] == next(iter(change))
        for field, now in change.items():
            assert f"`{field}` is {PHI.get(field, 'none')}, not {now}" in body["message"]
        assert registered(server) == before
    assert pull(server, **PHI, reasoning=True)[0] == 200, "labels may change"
    assert registered(server)["Phi-4-Mini-GGUF"]["labels"] == ["custom", "reasoning"]


def test_another_checkpoint_is_a_conflict_during_the_download(server: LemonbusServer, hub: Hub) -> None:
    hub.hold_after = 100_000
    big = {"model_name": "user.Big", "checkpoint": "shop/Big-GGUF", "recipe": "llamacpp"}
    first = server.client.start("POST", "/v1/pull", big)
    assert hub.holding.wait(20)
    assert registered(server) == {}
    assert pull(server, **{**big, "checkpoint": "shop/Other-GGUF:Q4_0"})[0] == 409
    joined = [server.client.start("POST", "/v1/pull", body) for body in (big, {"model_name": "user.Big"})]
    wait_for(lambda: server.state()["downloads"] == ["user.Big"], "one download runs")
    hub.released.set()
    assert [exchange.finish().status for exchange in (first, *joined)] == [200, 200, 200]
    assert len(hub.transfers) == 1
    assert set(registered(server)) == {"Big"}


def test_an_incomplete_model_is_not_registered(server: LemonbusServer, folder: Path) -> None:
    status, body = pull(server, model_name="user.B", checkpoint="shop/Broken-GGUF:Q8_0", recipe="llamacpp")
    assert status >= 400
    assert "truncated" in body["message"]
    assert registered(server) == {}
    assert cached(folder) == set()
    assert "user.B" not in ids(server, "?show_all=true")


def test_a_repository_that_the_recipe_cannot_load_is_not_registered(server: LemonbusServer) -> None:
    status, body = pull(server, model_name="user.X", checkpoint="shop/Onnx", recipe="llamacpp")
    assert status == 400
    assert "is not the GGUF file" in body["message"]
    assert registered(server) == {}
    assert pull(server, model_name="user.X", checkpoint="shop/Onnx", recipe="oga-cpu")[0] == 200
    assert "X" in registered(server)


def test_a_downloaded_model_is_registered_without_a_hub(
    server: LemonbusServer, offline_server: LemonbusServer, folder: Path
) -> None:
    assert pull(server, **PHI)[0] == 200
    offline = offline_server
    (offline.home / "state" / "user_models.json").unlink(missing_ok=True)
    status, body = pull(offline, **{**PHI, "model_name": "user.Second"})
    assert status == 200, body
    assert set(registered(offline)) == {"Second"}
    assert pull(offline, model_name="user.Third", checkpoint="shop/Other-GGUF:Q4_0", recipe="llamacpp")[0] == 503
    (blob,) = (path for path in (folder / "hf/hub").glob("models--unsloth--Phi*/blobs/*"))
    blob.write_bytes(blob.read_bytes()[:5000])
    status, body = pull(offline, **{**PHI, "model_name": "user.Fourth"})
    assert status == 503
    assert "truncated" in body["message"]
    assert set(registered(offline)) == {"Second"}
    status, body = pull(server, **{**PHI, "model_name": "user.Fifth"})
    assert status == 200, "with a hub it is downloaded again"


def test_a_file_that_cannot_be_written_leaves_nothing_half_done(server: LemonbusServer) -> None:
    state = server.home / "state" / "user_models.json"
    state.parent.mkdir(exist_ok=True)
    state.write_text("{ being edited")
    status, body = pull(server, **PHI)
    assert status == 500
    assert "user_models.json" in body["message"]
    assert str(server.home) not in body["message"]
    assert state.read_text() == "{ being edited"
    state.write_text('{"Mine": {"recipe": 5}, "Good": {"checkpoint": "shop/Other-GGUF:Q4_0", "recipe": "llamacpp"}}')
    assert pull(server, **PHI)[0] == 200
    assert set(registered(server)) == {"Mine", "Good", "Phi-4-Mini-GGUF"}, "what is not understood is kept"
    assert pull(server, **{**PHI, "model_name": "user.Mine"})[0] == 409


def test_many_registrations_at_once(server: LemonbusServer) -> None:
    bodies = [{**PHI, "model_name": f"user.M{number}"} for number in range(3)]
    assert run_concurrently(3, lambda index: pull(server, **bodies[index])[0]) == [200] * 3
    assert set(registered(server)) == {"M0", "M1", "M2"}


def download_of(server: LemonbusServer, name: str) -> dict[str, Any]:
    jobs = [job for job in server.client.get("/v1/downloads").json() if job["model_name"] == name]
    return jobs[0] if jobs else {}


def test_a_download_that_nobody_waits_for_is_shown_until_after_its_end(server: LemonbusServer, hub: Hub) -> None:
    name = PHI["model_name"]
    hub.hold_after = 100_000
    try:
        status, job = pull(server, **PHI, stream=True, subscribe=False)
        assert (status, job["id"], job["status"], job["complete"]) == (200, f"model:{name}", "downloading", False)
        wait_for(lambda: download_of(server, name).get("running"), "it runs")
        assert name not in ids(server)
    finally:
        hub.released.set()
    ended = wait_for(lambda: (job := download_of(server, name)).get("complete") and job, "it has ended")
    assert (ended["status"], ended["running"], ended["percent"]) == ("completed", False, 100)
    assert name in ids(server)
    status, job = pull(server, model_name=name, stream=True, subscribe=False)
    assert (status, job["status"]) == (200, "completed"), "it is here already"


def test_a_download_that_nobody_waits_for_says_why_it_failed(server: LemonbusServer) -> None:
    body = {"model_name": "user.Missing", "checkpoint": "acme/Missing-GGUF:Q4_K_M", "recipe": "llamacpp"}
    status, job = pull(server, **body, stream=True, subscribe=False)
    assert (status, job["running"]) == (200, True)
    failed = wait_for(lambda: (job := download_of(server, "user.Missing")).get("error") and job, "it has failed")
    assert (failed["status"], failed["code"]) == ("error", "checkpoint_not_found")
    assert pull(server, model_name="no-such-model", stream=True, subscribe=False)[0] == 404
