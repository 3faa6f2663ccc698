"""``install`` by other pins: wrong ones, newer ones, ones for another machine; offline, and from a mirror."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.backend_installation import (
    NAME,
    check_error,
    folders,
    install,
    release_server_with_pins,
    start_with_pins,
    state,
)
from tests.conftest import StartServer
from tests.support.fakes.machines import laptop
from tests.support.fakes.release_server import ReleaseServer
from tests.support.server import LemonbusServer


@pytest.fixture
def releases() -> Iterator[ReleaseServer]:
    with release_server_with_pins() as releases:
        yield releases


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the PATH of :func:`odd`."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def server_with_unusual_pins(
    tmp_path_factory: pytest.TempPathFactory,
    module_releases: ReleaseServer,
    start_module_server: StartServer,
    programs: Path,
) -> LemonbusServer:
    """A server on the documents' laptop, with pins that are wrong or not for it."""
    pins = [
        module_releases.pin("llamacpp:vulkan", "b1", NAME, digest="0" * 64),
        module_releases.pin("llamacpp:cuda", "b1", "new.tar.gz"),
        module_releases.pin("whispercpp:vulkan", "b1", "bad"),
        "nope:cpu@1=http://127.0.0.1/x#sha256=" + "0" * 64,
        "llamacpp:cpu@1=http://127.0.0.1/x#sha256=" + "0" * 64,
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=os.pathsep)
        machine = laptop(tmp_path_factory.mktemp("machine"))
        return start_with_pins(start_module_server, module_releases, *pins, machine_dir=str(machine.root))


def test_the_default_alias_is_echoed(server_with_unusual_pins: LemonbusServer, programs: Path) -> None:
    server = server_with_unusual_pins
    wanted = {"recipe": "flm", "backend": "default"}
    answer = server.client.post("/v1/install", wanted)
    check_error(answer, 501, "unsupported_operation", "flm", "https://", "PATH")
    assert state(server, "flm", "default")["state"] == "installable"
    (programs / "flm").write_text("#!/bin/sh\n")
    (programs / "flm").chmod(0o755)
    assert server.client.post("/v1/install", wanted).json() == {"status": "success", **wanted}
    assert state(server, "flm", "default") == {
        "devices": ["amd_npu"],
        "state": "installed",
        "message": "",
        "action": "",
    }
    check_error(server.client.post("/v1/uninstall", wanted), 409, "conflict")


def test_force_installs_what_this_machine_cannot_run(server_with_unusual_pins: LemonbusServer) -> None:
    server = server_with_unusual_pins
    wanted = {"recipe": "llamacpp", "backend": "cuda"}
    check_error(server.client.post("/v1/install", wanted), 400, "invalid_request", "an NVIDIA GPU")
    assert server.client.post("/v1/install", {**wanted, "force": True}).status == 200
    assert state(server, backend="cuda")["state"] == "unsupported"


def test_an_offline_server(releases: ReleaseServer, start_server: StartServer) -> None:
    server = start_with_pins(start_server, releases, offline=True)
    check_error(install(server), 503, "model_error", "offline")
    assert releases.requests == []


def test_failures_leave_nothing(server_with_unusual_pins: LemonbusServer) -> None:
    server = server_with_unusual_pins
    check_error(install(server), 502, "model_error", "sha256 differs")
    events = [event for event in install(server, stream=True).events if event.name != ":"]
    last = events[-1].json()
    assert events[-1].name == "error"
    assert "sha256 differs" in last["error"]
    assert (last["code"], bool(last["request_id"])) == ("download_failed", True)
    answer = server.client.post("/v1/install", {"recipe": "whispercpp", "backend": "vulkan"})
    check_error(answer, 502, "model_error", "the archive was refused")
    assert folders(server) == [".lock"]
    assert state(server)["state"] == "installable"
    problems = {line["problem"] for line in server.lines if line.get("event") == "backend releases"}
    assert {
        "backend_releases: there is no backend nope:cpu",
        "backend_releases: llamacpp:cpu is not installed from an archive",
    } <= problems


def test_an_update(releases: ReleaseServer, start_server: StartServer, tmp_path: Path) -> None:
    kept = {"cache_dir": str(tmp_path / "cache")}
    server = start_with_pins(start_server, releases, **kept)
    assert install(server).status == 200
    server.stop()
    server = start_with_pins(start_server, releases, releases.pin("llamacpp:vulkan", "b8000", "new.tar.gz"), **kept)
    before = state(server)
    assert (before["state"], before["version"]) == ("update_required", "b7869")
    assert before["message"] == "Backend update is required before use."
    assert before["action"] == "lemonbus backends install llamacpp:vulkan"
    assert install(server).json()["version"] == "b8000"
    assert (state(server)["state"], state(server)["version"]) == ("installed", "b8000")
    assert [name.split("-")[0] for name in folders(server) if name != ".lock"] == ["b8000"]


def test_a_mirror_stands_in_for_github(releases: ReleaseServer, start_server: StartServer) -> None:
    pin = releases.pin("llamacpp:vulkan", "b7869", NAME, url="https://github.com")
    server = start_with_pins(start_server, releases, pin, release_mirror=releases.url)
    assert install(server).status == 200
    assert releases.requests == [(NAME, 0)]
