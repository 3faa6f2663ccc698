"""Paused downloads: what was fetched stays, requests are refused, and a pull goes on where the download stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.server.models.pulls import (
    ENOUGH,
    FILES,
    HELD,
    MODEL,
    NAME,
    REPOSITORY,
    begun,
    forget_downloads,
    hub_with_settings,
    jobs,
    named,
    start,
)
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

NEW = "user.Renamed"
OTHER = "shop/other-GGUF:Q4_0"
REGISTRATION = {"checkpoint": f"{REPOSITORY}:Q4_0", "recipe": "llamacpp"}
DETACHED = {"stream": True, "subscribe": False}


@pytest.fixture(scope="module")
def hub_and_server(
    tmp_path_factory: pytest.TempPathFactory, start_module_server: StartServer
) -> Iterator[tuple[Hub, LemonbusServer]]:
    with hub_with_settings(tmp_path_factory.mktemp("hub")) as (hub, settings):
        yield hub, start_module_server("tiny-chat", **settings)


@pytest.fixture
def hub(hub_and_server: tuple[Hub, LemonbusServer]) -> Hub:
    return hub_and_server[0]


@pytest.fixture
def server(hub_and_server: tuple[Hub, LemonbusServer]) -> Iterator[LemonbusServer]:
    """The server, with nothing downloaded or paused; transfers stop after :data:`HELD` bytes."""
    hub, server = hub_and_server
    forget_downloads(hub, server)
    hub.hold_after = HELD
    yield server
    for name in [*paused(server), NEW]:
        server.client.post("/v1/delete", {"model_name": name})


def pause(server: LemonbusServer, name: str) -> dict[str, Any]:
    answer = server.client.post("/v1/downloads/pause", {"model_name": name})
    assert answer.status == 200, answer.body
    job: dict[str, Any] = answer.json()
    return job


def paused(server: LemonbusServer) -> list[str]:
    return [job["model_name"] for job in server.client.get("/v1/downloads").json() if job["status"] == "paused"]


def release(hub: Hub) -> None:
    hub.hold_after = 0
    hub.released.set()
    hub.transfers.clear()


def pull_detached(server: LemonbusServer, name: str, **fields: Any) -> None:
    """Begin a pull without waiting for it, and wait until it has fetched a part that it keeps."""
    assert server.client.post("/v1/pull", {"model_name": name, **DETACHED, **fields}).status == 200
    wait_for(lambda: fetched(server, name) > ENOUGH, "a part is fetched")


def fetched(server: LemonbusServer, name: str) -> int:
    found = [job["bytes_downloaded"] for job in server.client.get("/v1/downloads").json() if job["model_name"] == name]
    return found[0] if found else 0


def delete(server: LemonbusServer, name: str) -> None:
    answer = server.client.post("/v1/delete", {"model_name": name})
    assert answer.status == 200, answer.body


def partial_files() -> list[Path]:
    return list(Path(os.environ["HF_HOME"]).rglob("*.incomplete"))


def test_a_paused_download_refuses_requests_and_goes_on_with_the_next_pull(hub: Hub, server: LemonbusServer) -> None:
    stream = start(server, stream=True).until(begun)
    waiting = server.client.start(
        "POST", "/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "hi"}]}
    )
    wait_for(lambda: server.state()["queued"] == 1, "the request waits for the download")
    shown = pause(server, NAME)
    assert (shown["status"], shown["running"], shown["complete"]) == ("paused", False, False)
    assert shown["bytes_downloaded"] > ENOUGH
    (error,) = named(stream.finish(), "error")
    assert error["code"] == "download_paused"
    assert f"lemonbus pull {NAME}" in error["error"]
    assert not jobs(server)
    assert paused(server) == [NAME]
    assert pause(server, NAME) == shown, "a second one changes nothing"
    begun_before = len(hub.transfers)
    for refused in (waiting.finish(), server.client.post("/v1/load", {"model_name": NAME})):
        assert (refused.status, refused.error["code"]) == (503, "download_paused")
        assert refused.headers["x-should-retry"] == "false"
        assert "Retry-After" not in refused.headers
    assert len(hub.transfers) == begun_before
    release(hub)
    assert named(start(server, stream=True).finish(), "complete")
    assert hub.transfers[0][0] == "tiny-Q4_0.gguf"
    assert hub.transfers[0][1] > ENOUGH
    assert not paused(server)
    cached = list(Path(os.environ["HF_HOME"]).rglob("snapshots/*/tiny-Q4_0.gguf"))
    assert [path.read_bytes() for path in cached] == [MODEL]
    planned = server.client.post("/v1/delete", {"model_name": NAME, "dry_run": True}).json()
    sizes = {Path(file["path"]).name: file["size"] for file in planned["removed"]}
    assert sizes == {name: len(data) for name, data in FILES[REPOSITORY].items()}
    assert planned["files_removed"] == 0
    assert server.client.get(f"/internal/configuration?model={NAME}").json()["files"] == planned["removed"]
    assert cached[0].exists()


def test_a_paused_download_stays_paused_and_knows_what_it_registers_when_another_supervisor_takes_over(
    hub: Hub, server: LemonbusServer
) -> None:
    pull_detached(server, NEW, **REGISTRATION, reasoning=True)
    shown = pause(server, NEW)
    recover(server)
    assert paused(server) == [NEW]
    assert server.client.get("/v1/downloads").json() == [shown]
    assert server.client.get(f"/v1/models/{NEW}").status == 404
    release(hub)
    assert start(server, model_name=NEW).finish().status == 200
    assert hub.transfers[0][1] > ENOUGH
    found = server.client.get(f"/v1/models/{NEW}").json()
    assert found["downloaded"] is True
    assert "reasoning" in found["labels"]


def test_a_download_that_nobody_waits_for_is_registered_after_another_supervisor_has_taken_over(
    hub: Hub, server: LemonbusServer
) -> None:
    pull_detached(server, NEW, **REGISTRATION)
    (job,) = jobs(server)
    recover(server)
    assert jobs(server) == [job]
    release(hub)
    wait_for(lambda: server.client.get(f"/v1/models/{NEW}").status == 200, "the model is registered")


def test_a_deletion_removes_what_a_paused_download_has_fetched(server: LemonbusServer) -> None:
    pull_detached(server, NEW, **REGISTRATION)
    pause(server, NEW)
    (partial,) = partial_files()
    planned = server.client.post("/v1/delete", {"model_name": NEW, "dry_run": True}).json()
    assert planned["removed"] == [{"path": str(partial), "size": partial.stat().st_size}]
    assert paused(server) == [NEW]
    delete(server, NEW)
    assert not paused(server)
    assert not partial_files()


def test_an_unregistered_checkpoint_is_paused_resumed_and_deleted(hub: Hub, server: LemonbusServer) -> None:
    hub.repositories["shop/other-GGUF"] = {"tiny-Q4_0.gguf": MODEL}
    for resume in (False, True):
        pulling = server.client.start("POST", "/api/pull", {"model": OTHER})
        wait_for(lambda: fetched(server, OTHER) > ENOUGH, "a part is fetched")
        pause(server, OTHER)
        assert b"is paused" in pulling.finish().body
        recover(server)
        assert paused(server) == [OTHER]
        if resume:
            release(hub)
            assert start(server, model_name=OTHER).finish().status == 200
            assert hub.transfers[0][1] > ENOUGH
        delete(server, OTHER)
        assert not paused(server)
        assert not list(Path(os.environ["HF_HOME"]).rglob("blobs/*"))


def control(server: LemonbusServer, name: str, action: str) -> dict[str, Any]:
    answer = server.client.post("/v1/downloads/control", {"id": f"model:{name}", "action": action})
    assert answer.status == 200, answer.body
    job: dict[str, Any] = answer.json()
    return job


def listed(server: LemonbusServer) -> list[tuple[str, str]]:
    return [(job["model_name"], job["status"]) for job in server.client.get("/v1/downloads").json()]


def test_a_download_is_paused_resumed_cancelled_and_removed_as_lemonades_clients_do(
    hub: Hub, server: LemonbusServer
) -> None:
    pull_detached(server, NEW, **REGISTRATION)
    hub.hold_after = 100_000
    assert control(server, NEW, "pause")["status"] == "paused"
    assert control(server, NEW, "resume")["status"] == "downloading"
    stream = start(server, model_name=NEW, stream=True).until(begun)
    shown = control(server, NEW, "cancel")
    assert (shown["status"], shown["running"], shown["complete"], "error" in shown) == (
        "cancelled",
        False,
        False,
        False,
    )
    (error,) = named(stream.finish(), "error")
    assert error["code"] == "cancelled_by_operator"
    assert not jobs(server)
    assert listed(server) == [(NEW, "cancelled")]
    assert control(server, NEW, "resume")["status"] == "downloading", "what it registers is known"
    wait_for(lambda: fetched(server, NEW) > ENOUGH, "a part is fetched")
    control(server, NEW, "cancel")
    assert partial_files()
    delete(server, NEW)
    assert not partial_files()
    assert listed(server) == []
    assert control(server, NEW, "remove") == {"status": "ok", "missing": True}

    hub.hold_after = HELD
    pull_detached(server, NEW, **REGISTRATION)
    assert control(server, NEW, "remove") == {"status": "ok"}
    assert listed(server) == []
    assert not jobs(server)
    release(hub)
    assert start(server, model_name=NEW, **REGISTRATION).finish().status == 200
    (job,) = server.client.get("/v1/downloads").json()
    assert (job["status"], job["percent"], job["total_download_size"]) == ("completed", 100, len(MODEL))
    assert control(server, NEW, "cancel") == job, "it stays as it is"
    assert control(server, NEW, "remove") == {"status": "ok"}
    assert listed(server) == []


def test_only_a_download_can_be_paused(server: LemonbusServer) -> None:
    for name in (NAME, "nothing"):
        answer = server.client.post("/v1/downloads/pause", {"model_name": name})
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert name in answer.error["message"]


def recover(server: LemonbusServer) -> None:
    """Kill the supervisor, and wait until the next one has taken over."""
    before = len(recoveries(server))
    server.kill_supervisor()
    wait_for(lambda: len(recoveries(server)) > before, "the next one has taken over")


def recoveries(server: LemonbusServer) -> list[dict[str, Any]]:
    return [line for line in server.lines if line["event"] == "recovered"]
