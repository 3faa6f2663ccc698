"""``install`` and ``uninstall`` as document 000 shows them, with a release server on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.compatibility.backend_installation import (
    CHAT,
    NAME,
    VULKAN,
    bytes_on_disk,
    check_error,
    folders,
    install,
    install_job_pid,
    start_with_pins,
    state,
)
from tests.conftest import StartServer
from tests.support.fakes.release_server import ReleaseServer
from tests.support.http_client import run_concurrently
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LAUNCH = Path(__file__).parents[2] / "deploy" / "launch"


@pytest.fixture(scope="module")
def module_server(module_releases: ReleaseServer, start_module_server: StartServer) -> LemonbusServer:
    return start_with_pins(start_module_server, module_releases)


@pytest.fixture
def server(module_server: LemonbusServer, module_releases: ReleaseServer) -> LemonbusServer:
    """A server that all tests of the one archive share; each finds nothing installed and nothing loaded."""
    module_releases.hold_after = 0
    module_releases.released.set()
    wait_for(lambda: not install_job_pid(module_server), "nothing is being installed")
    if module_server.health()["all_models_loaded"]:
        assert module_server.client.post("/v1/unload", {}).status == 200
    shutil.rmtree(Path(module_server.settings.cache_dir) / "backends", ignore_errors=True)
    module_releases.released.clear()
    module_releases.holding.clear()
    module_releases.requests.clear()
    return module_server


# POST /v1/install, and POST /v1/uninstall of the example


def test_the_examples_under_every_prefix(server: LemonbusServer) -> None:
    for prefix in VERSION_PREFIXES:
        before = state(server)
        assert before == {
            "devices": before["devices"],
            "state": "installable",
            "message": "Backend is supported but not installed.",
            "action": "lemonbus backends install llamacpp:vulkan",
            "version": "b7869",
        }
        assert "cpu" in before["devices"]
        answer = install(server, prefix, stream=False)
        assert answer.status == 200
        assert answer.json() == {"status": "success", **VULKAN, "version": "b7869"}
        after = state(server)
        assert (after["state"], after["message"], after["action"], after["version"]) == ("installed", "", "", "b7869")
        for _ in range(2):
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


def test_streamed_with_force(server: LemonbusServer, module_releases: ReleaseServer) -> None:
    answer = install(server, stream=True, force=True)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    reported = [(event.name, event.json()) for event in answer.events if event.name != ":"]
    assert {name for name, _ in reported} == {"progress", "complete"}
    size = len(module_releases.files[NAME])
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


def test_what_is_there_already_is_not_installed_again(server: LemonbusServer, module_releases: ReleaseServer) -> None:
    assert install(server).status == install(server).status == 200
    assert len(module_releases.requests) == 1
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
        ({"recipe": 7, "backend": "cpu"}, ["`recipe` must be a string"]),
        ({**VULKAN, "stream": "yes"}, ["`stream` must be true or false"]),
        ({**VULKAN, "force": 1}, ["`force` must be true or false"]),
    ],
)
def test_mistakes(shared_server: LemonbusServer, body: dict[str, Any], words: list[str]) -> None:
    for more in ({}, {"stream": True}) if "stream" not in body else ({},):
        check_error(shared_server.client.post("/v1/install", {**body, **more}), 400, "invalid_request", *words)


def test_concurrent_installs_join(server: LemonbusServer, module_releases: ReleaseServer) -> None:
    answers = run_concurrently(6, lambda index: install(server, stream=bool(index % 2)))
    assert {answer.status for answer in answers} == {200}
    assert [event.name for event in answers[1].events][-1] == "complete"
    assert len(module_releases.requests) == 1


def test_a_killed_job_leaves_nothing_and_the_next_goes_on(
    server: LemonbusServer, module_releases: ReleaseServer
) -> None:
    module_releases.hold_after = 200_000
    waiting = server.client.start("POST", "/v1/install", VULKAN)
    assert module_releases.holding.wait(10)
    check_error(server.client.post("/v1/uninstall", VULKAN), 409, "conflict", "is just being installed")
    wait_for(lambda: bytes_on_disk(server), "some of it is on the disk")
    os.kill(wait_for(lambda: install_job_pid(server), "the job runs"), signal.SIGKILL)
    check_error(waiting.finish(), 502, "model_error", "interrupted", "nothing was changed")
    assert state(server)["state"] == "installable"
    module_releases.hold_after = 0
    assert install(server).status == 200
    (_, first), (_, second) = module_releases.requests
    assert (first, second) == (0, second)
    assert second > 0
    assert [name for name in folders(server) if name != ".lock"] == [
        name for name in folders(server) if name.startswith("b7869-")
    ]


def test_a_client_that_hangs_up_leaves_the_installation_alone(
    server: LemonbusServer, module_releases: ReleaseServer
) -> None:
    module_releases.hold_after = 200_000
    waiting = server.client.start("POST", "/v1/install", {**VULKAN, "stream": True})
    assert module_releases.holding.wait(10)
    waiting.connection.close()
    module_releases.released.set()
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


def lemonbus(server: LemonbusServer, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEMON")}
    environment["LEMONBUS_URL"] = f"http://127.0.0.1:{server.port}"
    return subprocess.run(
        [sys.executable, str(LAUNCH), "backends", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_terminal(server: LemonbusServer) -> None:
    done = lemonbus(server, "install", "llamacpp:vulkan")
    assert (done.returncode, done.stdout) == (0, "Installed backend: llamacpp:vulkan\n"), done.stderr
    assert f"{NAME} (1/1) 100 %" in done.stderr
    for words in ([], ["list"]):
        listed = lemonbus(server, *words).stdout
        assert "llamacpp:cpu *" in listed
        assert any(line.split()[:3] == ["llamacpp:vulkan", "installed", "b7869"] for line in listed.splitlines())
    assert json.loads(lemonbus(server, "list", "--json").stdout)["llamacpp"]["default_backend"] == "cpu"
    done = lemonbus(server, "uninstall", "llamacpp:vulkan")
    assert (done.returncode, done.stdout) == (0, "Removed backend: llamacpp:vulkan\n")
    done = lemonbus(server, "install", "llamacpp:vulkan", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "complete"
    done = lemonbus(server, "install", "llamacpp:metal")
    assert done.returncode == 1
    assert "Requires macOS" in done.stderr
    done = lemonbus(server, "install", "llamacpp")
    assert done.returncode == 2
    assert "RECIPE:BACKEND" in done.stderr
