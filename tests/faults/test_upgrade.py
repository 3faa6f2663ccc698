"""Another release is installed under a running server and takes over: no request fails, whatever versions the two speak."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from protocol import RELEASE, VERSION
from tests.conftest import StartServer
from tests.faults.repeating_clients import asking
from tests.support.installed_code import InstalledCode
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"


def upgrade(server: LemonbusServer) -> None:
    old = server.supervisor_pid
    assert server.client.post("/internal/upgrade", {}).status == 200
    wait_for(lambda: server.supervisor_pid != old, "another supervisor runs")


def test_workers_of_an_older_release_go_on_under_a_newer_supervisor(start_server: StartServer, tmp_path: Path) -> None:
    code = InstalledCode(tmp_path)
    code.install(release="0.0.9")
    server = start_server("tiny-chat", "tiny-loop", root=tmp_path, load=[CHAT, LOOP], slots=2)
    server.wait_loaded(CHAT, LOOP)
    assert server.health()["version"] == "0.0.9"
    engines = [server.engine_pid(model) for model in (CHAT, LOOP)]
    gateways = server.gateway_pids()
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=1500)
    stream.until(lambda it: len(it.events) > 2)
    with asking(server) as clients:
        clients.start(CHAT, 3)
        wait_for(lambda: clients.answers[CHAT] >= 6, "chats are answered")
        code.install(release=RELEASE, version=VERSION)
        upgrade(server)
        wait_for(lambda: server.health().get("version") == RELEASE, "the new release answers", 30.0)
        before = clients.answers[CHAT]
        wait_for(lambda: clients.answers[CHAT] >= before + 6, "chats are answered afterwards")
    assert clients.failures == []
    assert stream.finish(60).done
    assert [server.engine_pid(model) for model in (CHAT, LOOP)] == engines
    wait_for(lambda: not {*gateways} & {each.pid for each in server.process_tree()}, "gateways of the old release end")


@pytest.mark.parametrize("older_version", [VERSION - 1])
def test_workers_of_another_version_finish_what_runs_and_are_replaced(
    start_server: StartServer, tmp_path: Path, older_version: int
) -> None:
    code = InstalledCode(tmp_path)
    code.install(release="0.0.9", version=older_version)
    server = start_server("tiny-chat", "tiny-loop", root=tmp_path, load=[CHAT], slots=2)
    server.wait_loaded(CHAT)
    load = {"model_name": LOOP, "ctx_size": 1024, "pinned": True}
    assert server.client.post("/v1/load", load).status == 200
    engines = [server.engine_pid(model) for model in (CHAT, LOOP)]
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=500)
    stream.until(lambda it: len(it.events) > 2)
    code.install(release=RELEASE, version=VERSION)
    os.kill(server.keeper_pid, signal.SIGUSR2)
    assert stream.finish(60).done, "it ended at its worker of the older release"
    wait_for(lambda: server.health().get("version") == RELEASE, "the new release answers", 30.0)
    server.wait_loaded(CHAT, LOOP)
    assert not {*engines} & {server.engine_pid(model) for model in (CHAT, LOOP)}
    loaded = {each["model_name"]: each for each in server.health()["all_models_loaded"]}
    assert (loaded[LOOP]["pinned"], loaded[CHAT]["pinned"]) == (True, False)
    assert loaded[LOOP]["recipe_options"]["ctx_size"] == 1024
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert not [line for line in server.lines if line["event"] == "restart the server"]
