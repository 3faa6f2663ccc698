"""Another release is installed under load and takes over, again and again: no request fails, and no model is loaded again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from protocol import RELEASE
from tests.conftest import StartServer
from tests.faults.repeating_clients import asking
from tests.support.http_exchange import HttpExchange
from tests.support.server import ROOT, LemonbusServer
from tests.support.waiting import wait_for

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"
PACKAGES = ("protocol", "supervisor", "workers", "gateway")
UPGRADES = 3


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the code: what is installed."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def server(start_server: StartServer, installed: Path) -> LemonbusServer:
    models: dict[str, Any] = {"load": [LOOP, CHAT], "max_loaded_models": 2, "slots": 8}
    started = start_server("tiny-loop", "tiny-chat", root=installed, gateway_workers=2, **models)
    started.wait_loaded(LOOP, CHAT)
    return started


def install(root: Path, release: str) -> None:
    """Install another release, as ``pip install -U`` does: the files change under what runs."""
    marker = root / "protocol" / "__init__.py"
    marker.write_text(re.sub(r"^RELEASE = .*", f'RELEASE = "{release}"', marker.read_text(), flags=re.MULTILINE))


def upgrade(server: LemonbusServer) -> HttpExchange:
    return server.client.start("POST", "/internal/upgrade", {}).finish(60)


def test_newer_releases_take_over_and_no_request_fails(server: LemonbusServer, installed: Path) -> None:
    engines = {model: server.engine_pid(model) for model in (LOOP, CHAT)}
    gateways = server.gateway_pids()
    with asking(server) as clients:
        clients.start(LOOP, 12, max_tokens=200)
        clients.start(CHAT, 2, max_tokens=3)
        for number in range(UPGRADES):
            release = f"{RELEASE}.{number + 1}"
            install(installed, release)
            answer = upgrade(server)
            assert (answer.status, answer.json().get("release")) == (200, release), answer
            before = sum(clients.answers.values())
            wait_for(lambda before=before: sum(clients.answers.values()) > before + 20, "requests are answered", 60)  # type: ignore[misc]
        wait_for(lambda: not set(gateways) & set(server.gateway_pids()), "the gateways are of the new release", 60)
    assert clients.failures == []
    assert {model: server.engine_pid(model) for model in (LOOP, CHAT)} == engines
    server.assert_idle()


def test_a_release_that_cannot_start_is_told_and_no_request_fails(server: LemonbusServer, installed: Path) -> None:
    gateways = server.gateway_pids()
    with asking(server) as clients:
        clients.start(LOOP, 8, max_tokens=200)
        install(installed, f"{RELEASE}.1")
        (installed / "supervisor" / "runtime" / "server.py").write_text("import nothing_of_that_name\n")
        answer = upgrade(server)
    assert clients.failures == []
    assert answer.status == 500
    assert f"release {RELEASE} goes on" in answer.error["message"]
    assert [line["why"] for line in server.lines if line["event"] == "not upgraded: this release goes on"]
    assert server.gateway_pids() == gateways
