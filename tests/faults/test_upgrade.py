"""Another release is installed under a running server and takes over: no request fails, whatever versions the two speak."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol import RELEASE, VERSION
from tests.conftest import StartServer
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import ROOT, LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
CODE = ("protocol", "supervisor", "workers", "gateway")


class Installation:
    """A folder with the code of a release."""

    def __init__(self, folder: Path, release: str, version: int) -> None:
        self.folder = folder
        for package in CODE:
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        self.install(release, version)

    def install(self, release: str, version: int) -> None:
        """Put another release in the place of this one, as ``pip install -U`` does."""
        marker = self.folder / "protocol" / "__init__.py"
        text = re.sub(r"^VERSION = \d+", f"VERSION = {version}", marker.read_text(), flags=re.MULTILINE)
        marker.write_text(re.sub(r'^RELEASE = ".*"', f'RELEASE = "{release}"', text, flags=re.MULTILINE))


@contextmanager
def chats(server: LemonbusServer) -> Iterator[list[int]]:
    """Chat all the time from several clients; gives the statuses, a list that grows."""
    statuses: list[int] = []
    end = threading.Event()

    def chat() -> None:
        for _ in itertools.count():
            if end.is_set():
                return
            answer = server.client.chat(CHAT)
            statuses.append(answer.status if answer.status != 200 or answer.text == CHAT_TEXT else 0)

    threads = [threading.Thread(target=chat) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(statuses) >= 6, "chats are answered")
        yield statuses
        before = len(statuses)
        wait_for(lambda: len(statuses) >= before + 6, "chats are answered afterwards")
    finally:
        end.set()
        for thread in threads:
            thread.join(60)


def upgrade(server: LemonbusServer) -> None:
    old = server.supervisor_pid
    assert server.client.post("/internal/upgrade", {}).status == 200
    wait_for(lambda: server.supervisor_pid != old, "another supervisor runs")


def test_workers_of_an_older_release_go_on_under_a_newer_supervisor(start_server: StartServer, tmp_path: Path) -> None:
    older = Installation(tmp_path, "0.0.9", VERSION)
    server = start_server("tiny-chat", "tiny-loop", root=tmp_path, load=[CHAT, LOOP], slots=2)
    server.wait_loaded(CHAT, LOOP)
    assert server.health()["version"] == "0.0.9"
    engines = [server.engine_pid(model) for model in (CHAT, LOOP)]
    gateways = server.gateway_pids()
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=1500)
    stream.until(lambda it: len(it.events) > 2)
    with chats(server) as statuses:
        older.install(RELEASE, VERSION)
        upgrade(server)
        wait_for(lambda: server.health().get("version") == RELEASE, "the new release answers", 30.0)
    assert {*statuses} == {200}
    assert stream.finish(60).done
    assert [server.engine_pid(model) for model in (CHAT, LOOP)] == engines
    wait_for(lambda: not {*gateways} & {each.pid for each in server.process_tree()}, "gateways of the old release end")


@pytest.mark.parametrize("older_version", [VERSION - 1])
def test_workers_of_another_version_finish_what_runs_and_are_replaced(
    start_server: StartServer, tmp_path: Path, older_version: int
) -> None:
    older = Installation(tmp_path, "0.0.9", older_version)
    server = start_server("tiny-chat", "tiny-loop", root=tmp_path, load=[CHAT], slots=2)
    server.wait_loaded(CHAT)
    load = {"model_name": LOOP, "ctx_size": 1024, "pinned": True}
    assert server.client.post("/v1/load", load).status == 200
    engines = [server.engine_pid(model) for model in (CHAT, LOOP)]
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=500)
    stream.until(lambda it: len(it.events) > 2)
    older.install(RELEASE, VERSION)
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
