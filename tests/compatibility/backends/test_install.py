"""``install`` and ``uninstall`` as document 000 shows them, with a release server on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.compatibility.backend_installation import (
    CHAT,
    NAME,
    RELEASE,
    VULKAN,
    bytes_on_disk,
    check_error,
    folders,
    install,
    install_job_pid,
    state,
)
from tests.compatibility.conftest import RunCommand
from tests.compatibility.hub_server import HubServer
from tests.support.clients.http_client import run_concurrently
from tests.support.fakes.release_server import ReleaseServer
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


@pytest.fixture
def releases(session_releases: ReleaseServer) -> ReleaseServer:
    return session_releases


@pytest.fixture
def server(module_hub_server: HubServer, releases: ReleaseServer) -> LemonbusServer:
    """A server that all tests of the one archive share; each finds nothing installed and nothing loaded."""
    shared = module_hub_server.server
    releases.hold_after = 0
    releases.released.set()
    # Until the supervisor knows that a job has ended, an installation joins it, even if its files are gone. So ask the supervisor.
    wait_for(lambda: shared.client.post("/v1/uninstall", VULKAN).status == 200, "nothing is being installed", 10.0)
    if shared.health()["all_models_loaded"]:
        assert shared.client.post("/v1/unload", {}).status == 200
    shutil.rmtree(Path(shared.settings.cache_dir) / "backends", ignore_errors=True)
    releases.released.clear()
    releases.holding.clear()
    releases.requests.clear()
    return shared


# POST /v1/install, and POST /v1/uninstall of the example


def test_the_examples_under_every_prefix(server: LemonbusServer, releases: ReleaseServer) -> None:
    before = state(server)
    assert before == {
        "devices": before["devices"],
        "state": "installable",
        "message": "Backend is supported but not installed.",
        "action": "lemonbus backends install llamacpp:vulkan",
        "version": RELEASE,
    }
    assert "cpu" in before["devices"]
    for prefix in VERSION_PREFIXES:
        answer = install(server, prefix, stream=False)
        assert answer.status == 200
        assert answer.json() == {"status": "success", **VULKAN, "version": RELEASE}
        after = state(server)
        assert (after["state"], after["message"], after["action"], after["version"]) == ("installed", "", "", RELEASE)
    assert len(releases.requests) == 1, "what is there already is not installed again"
    for prefix in VERSION_PREFIXES:
        answer = server.client.post(f"{prefix}/uninstall", VULKAN)
        assert answer.status == 200
        assert answer.json() == {"status": "success", **VULKAN}
        assert folders(server) == [".lock"]


def test_what_was_installed_runs_models(server: LemonbusServer) -> None:
    answer = server.client.post("/v1/load", {"model_name": CHAT, "llamacpp_backend": "vulkan"})
    assert answer.status == 409, answer.json()
    assert "lemonbus backends install llamacpp:vulkan" in answer.json()["message"]
    assert install(server).status == 200
    answer = server.client.post("/v1/load", {"model_name": CHAT, "llamacpp_backend": "vulkan"})
    assert answer.status == 200, answer.json()
    answer_body = server.client.chat(CHAT).finish().json()
    assert answer_body["choices"][0]["message"]["content"].strip() == CHAT_TEXT.strip()
    engine = server.engine_now(CHAT)
    assert engine is not None
    assert engine.option("-ngl") == "99"


def test_streamed_with_force(server: LemonbusServer, releases: ReleaseServer) -> None:
    answer = install(server, stream=True, force=True)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    reported = [(event.name, event.json()) for event in answer.messages]
    assert {name for name, _ in reported} == {"progress", "complete"}
    size = len(releases.files[NAME])
    for name, data in reported[:-1]:
        assert name == "progress"
        assert set(data) == {"file", "file_index", "total_files", "bytes_downloaded", "bytes_total", "percent"}
    assert (reported[-2][1]["file"], reported[-2][1]["bytes_downloaded"], reported[-2][1]["bytes_total"]) == (
        NAME,
        size,
        size,
    )
    assert reported[-1] == (
        "complete",
        {"file_index": 1, "total_files": 1, "percent": 100, "status": "success", **VULKAN},
    )


def test_what_came_with_the_server_is_not_installed_again(server: LemonbusServer) -> None:
    answer = server.client.post("/v1/install", {"recipe": "llamacpp", "backend": "default"})
    assert answer.json() == {
        "status": "success",
        "recipe": "llamacpp",
        "backend": "default",
        "version": state(server, backend="cpu")["version"],
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"recipe": "llamacpp", "backend": "metal"}, ["Requires macOS", "force"]),
        ({"recipe": "llamacpp", "backend": "metal", "force": True}, ["backend_releases", "llamacpp:metal@"]),
        (
            {"recipe": "sd-cpp", "backend": "cpu"},
            ["`pip install 'lemonbus[sdcpp]'`", "backend_releases", "sd-cpp:cpu@VERSION=URL#sha256=DIGEST"],
        ),
        ({"recipe": "nope", "backend": "cpu"}, ["nope", "llamacpp"]),
        ({"recipe": "llamacpp", "backend": "nope"}, ["nope", "vulkan"]),
        ({"recipe": "llamacpp"}, ["`backend` is required"]),
        ({"backend": "cpu"}, ["`recipe` is required"]),
        ({"recipe": 7, "backend": "cpu"}, ["`recipe`: expected string, got integer"]),
        ({**VULKAN, "stream": "yes"}, ["`stream`: expected boolean or null, got string"]),
        ({**VULKAN, "force": 1}, ["`force`: expected boolean or null, got integer"]),
    ],
)
def test_mistakes(shared_server: LemonbusServer, body: dict[str, Any], words: list[str]) -> None:
    for more in ({}, {"stream": True}) if "stream" not in body else ({},):
        check_error(shared_server.client.post("/v1/install", {**body, **more}), 400, "invalid_request", *words)


def test_concurrent_installs_join(server: LemonbusServer, releases: ReleaseServer) -> None:
    answers = run_concurrently(6, lambda index: install(server, stream=bool(index % 2)))
    assert {answer.status for answer in answers} == {200}
    assert [event.name for event in answers[1].events][-1] == "complete"
    assert len(releases.requests) == 1


def test_a_killed_job_leaves_nothing_and_the_next_goes_on(server: LemonbusServer, releases: ReleaseServer) -> None:
    releases.hold_after = 200_000
    waiting = server.client.start("POST", "/v1/install", VULKAN)
    assert releases.holding.wait(10)
    check_error(server.client.post("/v1/uninstall", VULKAN), 409, "conflict", "is currently being installed")
    wait_for(lambda: bytes_on_disk(server), "some of it is on the disk")
    os.kill(wait_for(lambda: install_job_pid(server), "the job runs"), signal.SIGKILL)
    check_error(waiting.finish(), 502, "model_error", "interrupted", "nothing was changed")
    assert state(server)["state"] == "installable"
    releases.hold_after = 0
    assert install(server).status == 200
    (_, first), (_, second) = releases.requests
    assert (first, second) == (0, second)
    assert second > 0
    assert [name for name in folders(server) if name != ".lock"] == [
        name for name in folders(server) if name.startswith(f"{RELEASE}-")
    ]


def test_an_installation_is_paused_resumed_and_cancelled_like_a_download(
    server: LemonbusServer, releases: ReleaseServer
) -> None:
    name = "backend:llamacpp:vulkan"

    def shown() -> dict[str, Any]:
        (job,) = [each for each in server.client.get("/v1/downloads").json() if each["id"] == name]
        return dict(job)

    def control(action: str) -> dict[str, Any]:
        answer = server.client.post("/v1/downloads/control", {"id": name, "action": action})
        assert answer.status == 200, answer
        return dict(answer.json())

    def held() -> None:
        wait_for(lambda: shown()["bytes_downloaded"] > 0, "a part is fetched")

    control("remove")
    releases.hold_after = 200_000
    begun = install(server, stream=True, subscribe=False).json()
    assert (begun["id"], begun["type"], begun["status"], begun["running"]) == (name, "backend", "downloading", True)
    waiting = server.client.start("POST", "/v1/install", VULKAN)
    held()
    paused = control("pause")
    assert (paused["status"], paused["running"], shown()) == ("paused", False, paused)
    assert waiting.finish().error["code"] == "download_paused"
    assert not install_job_pid(server)
    assert control("resume")["status"] == "downloading"
    held()
    cancelled = control("cancel")
    assert (cancelled["status"], cancelled["running"], shown()) == ("cancelled", False, cancelled)
    assert state(server)["state"] == "installable"
    releases.hold_after = 0
    assert control("resume")["running"] is True
    wait_for(lambda: shown()["complete"], "it is installed", 10.0)
    assert state(server)["state"] == "installed"
    assert install(server, stream=True, subscribe=False).json()["status"] == "completed"
    assert control("remove") == {"status": "ok"}
    assert control("remove") == {"status": "ok", "missing": True}
    answer = server.client.post("/v1/downloads/control", {"id": name, "action": "pause"})
    check_error(answer, 404, "not_found", "llamacpp:vulkan is not being installed")


def test_a_client_that_hangs_up_leaves_the_installation_alone(server: LemonbusServer, releases: ReleaseServer) -> None:
    releases.hold_after = 200_000
    waiting = server.client.start("POST", "/v1/install", {**VULKAN, "stream": True})
    assert releases.holding.wait(10)
    waiting.connection.close()
    releases.released.set()
    wait_for(lambda: state(server)["state"] == "installed", "it is installed", 10.0)


# POST /v1/uninstall


def test_models_are_unloaded_first(server: LemonbusServer) -> None:
    assert install(server).status == 200
    assert server.client.post("/v1/load", {"model_name": CHAT, "llamacpp_backend": "vulkan"}).status == 200
    assert server.client.post("/v1/uninstall", VULKAN).status == 200
    assert server.health()["all_models_loaded"] == []
    assert server.engine_now(CHAT) is None
    assert folders(server) == [".lock"]


def test_models_of_other_backends_stay(server: LemonbusServer) -> None:
    assert install(server).status == 200
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    assert server.client.post("/v1/uninstall", VULKAN).status == 200
    assert [each["model_name"] for each in server.health()["all_models_loaded"]] == [CHAT]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"recipe": "llamacpp", "backend": "nope"}, 400, "invalid_request"),
        ({"recipe": "nope", "backend": "cpu"}, 400, "invalid_request"),
        ({"recipe": "llamacpp"}, 400, "invalid_request"),
        ({"recipe": "llamacpp", "backend": "cpu"}, 409, "conflict"),
        ({"recipe": "llamacpp", "backend": "system"}, 409, "conflict"),
    ],
)
def test_mistakes_of_uninstall(shared_server: LemonbusServer, body: dict[str, Any], status: int, kind: str) -> None:
    check_error(shared_server.client.post("/v1/uninstall", body), status, kind)


# lemonbus backends


def test_the_terminal(server: LemonbusServer, lemonbus: RunCommand) -> None:
    def backends(*words: str) -> tuple[int, str, str]:
        return lemonbus(server, "backends", *words)

    code, out, err = backends("install", "llamacpp:vulkan")
    assert (code, out) == (0, "Installed backend: llamacpp:vulkan\n"), err
    assert f"{NAME} (1/1) 100 %" in err
    for words in ([], ["list"]):
        listed = backends(*words)[1]
        assert "llamacpp:cpu *" in listed
        assert any(line.split()[:3] == ["llamacpp:vulkan", "installed", RELEASE] for line in listed.splitlines())
    assert json.loads(backends("list", "--json")[1])["llamacpp"]["default_backend"] == "cpu"
    assert backends("uninstall", "llamacpp:vulkan")[:2] == (0, "Removed backend: llamacpp:vulkan\n")
    out = backends("install", "llamacpp:vulkan", "--json")[1]
    assert json.loads(out.splitlines()[-1])["event"] == "complete"
    code, _, err = backends("install", "llamacpp:metal")
    assert (code, "Requires macOS" in err) == (1, True), err
    code, _, err = backends("install", "llamacpp")
    assert (code, "RECIPE:BACKEND" in err) == (2, True), err
