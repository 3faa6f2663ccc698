"""``install`` with other pins: wrong ones, pins for another machine, pins of a mirror; and offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.backend_installation import CUDA, check_error, folders, install, state
from tests.support.fakes.release_server import ReleaseServer
from tests.support.server import LemonbusServer


@pytest.fixture
def releases(session_releases: ReleaseServer) -> ReleaseServer:
    """The release server, which has had no requests yet."""
    session_releases.requests.clear()
    return session_releases


@pytest.fixture
def flm_program(laptop_programs: Path) -> Iterator[Path]:
    """The path at which the laptop would find ``flm``, until the end of the test."""
    program = laptop_programs / "flm"
    yield program
    program.unlink(missing_ok=True)


def test_the_default_alias_is_echoed(laptop_server: LemonbusServer, flm_program: Path) -> None:
    server = laptop_server
    wanted = {"recipe": "flm", "backend": "default"}
    answer = server.client.post("/v1/install", wanted)
    check_error(answer, 501, "unsupported_operation", "flm", "https://", "PATH")
    assert state(server, "flm", "default")["state"] == "installable"
    flm_program.write_text("#!/bin/sh\n")
    flm_program.chmod(0o755)
    assert server.client.post("/v1/install", wanted).json() == {"status": "success", **wanted}
    assert state(server, "flm", "default") == {
        "devices": ["amd_npu"],
        "state": "installed",
        "message": "",
        "action": "",
    }
    check_error(server.client.post("/v1/uninstall", wanted), 409, "conflict")


def test_force_installs_what_this_machine_cannot_run_and_a_mirror_stands_in_for_github(
    laptop_server: LemonbusServer, releases: ReleaseServer
) -> None:
    check_error(laptop_server.client.post("/v1/install", CUDA), 400, "invalid_request", "an NVIDIA GPU")
    assert laptop_server.client.post("/v1/install", {**CUDA, "force": True}).status == 200
    assert releases.requests == [("new.tar.gz", 0)], "its pin names github.com"
    assert state(laptop_server, backend="cuda")["state"] == "unsupported"
    assert laptop_server.client.post("/v1/uninstall", CUDA).status == 200


def test_an_offline_server(offline_server: LemonbusServer, releases: ReleaseServer) -> None:
    check_error(install(offline_server), 503, "model_error", "offline")
    assert releases.requests == []


def test_failures_leave_nothing(laptop_server: LemonbusServer) -> None:
    server = laptop_server
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
    problems = {
        line["reason"]
        for line in server.lines
        if line.get("event") == "a configured release of a backend cannot be used"
    }
    assert {
        "backend_releases: there is no backend nope:cpu",
        "backend_releases: llamacpp:cpu is not installed from an archive",
    } <= problems
