"""Another release is installed under load and takes over, again and again: no request fails, and no model is loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol import RELEASE
from tests.conftest import StartServer
from tests.faults.repeating_clients import asking
from tests.support.http_exchange import HttpExchange
from tests.support.installed_code import InstalledCode
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"
UPGRADES = 3


@pytest.fixture
def code(tmp_path: Path) -> InstalledCode:
    return InstalledCode(tmp_path)


@pytest.fixture
def server(start_server: StartServer, code: InstalledCode) -> LemonbusServer:
    models: dict[str, Any] = {"load": [LOOP, CHAT], "max_loaded_models": 2, "slots": 8}
    started = start_server("tiny-loop", "tiny-chat", root=code.folder, gateway_workers=2, **models)
    started.wait_loaded(LOOP, CHAT)
    return started


def upgrade(server: LemonbusServer) -> HttpExchange:
    return server.client.start("POST", "/internal/upgrade", {}).finish(60)


def test_newer_releases_take_over_and_no_request_fails(server: LemonbusServer, code: InstalledCode) -> None:
    engines = {model: server.engine_pid(model) for model in (LOOP, CHAT)}
    gateways = server.gateway_pids()
    with asking(server) as clients:
        clients.start(LOOP, 12, max_tokens=200)
        clients.start(CHAT, 2, max_tokens=3)
        for number in range(UPGRADES):
            release = f"{RELEASE}.{number + 1}"
            code.install(release=release)
            answer = upgrade(server)
            assert (answer.status, answer.json().get("release")) == (200, release), answer
            before = sum(clients.answers.values())
            wait_for(lambda before=before: sum(clients.answers.values()) > before + 20, "requests are answered", 60)  # type: ignore[misc]
        wait_for(lambda: not set(gateways) & set(server.gateway_pids()), "the gateways are of the new release", 60)
    assert clients.failures == []
    assert {model: server.engine_pid(model) for model in (LOOP, CHAT)} == engines
    server.assert_idle()


def test_a_release_that_cannot_start_is_told_and_no_request_fails(server: LemonbusServer, code: InstalledCode) -> None:
    gateways = server.gateway_pids()
    with asking(server) as clients:
        clients.start(LOOP, 8, max_tokens=200)
        code.install(release=f"{RELEASE}.1")
        code.append("supervisor/lifecycle/server.py", "import nothing_of_that_name\n")
        answer = upgrade(server)
    assert clients.failures == []
    assert answer.status == 500
    assert f"release {RELEASE} goes on" in answer.error["message"]
    assert [line["why"] for line in server.lines if line["event"] == "not upgraded: this release goes on"]
    assert server.gateway_pids() == gateways
