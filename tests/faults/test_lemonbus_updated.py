"""Another version is installed under a running server: the cure is told, and nothing waits for ever."""

from __future__ import annotations

from pathlib import Path

from protocol import VERSION
from tests.conftest import StartServer
from tests.support import processes
from tests.support.installed_code import InstalledCode
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.waiting import wait_for

CHAT, TALES = "extra.tiny-chat", "extra.tiny-tale"


def test_another_protocol_version_under_a_running_server(start_server: StartServer, tmp_path: Path) -> None:
    code = InstalledCode(tmp_path)
    server = start_server("tiny-chat", "tiny-tale", root=tmp_path, load=[CHAT])
    server.wait_loaded(CHAT)
    in_use = server.worker_pid(CHAT)
    wait_for(lambda: len(server.workers()) > 1, "a spare worker runs")
    code.install(version=VERSION + 1)
    for worker in server.workers():
        if worker.pid != in_use:
            processes.kill(worker.pid)
    wait_for(lambda: server.state()["problems"], "health tells the problem")
    (problem,) = server.state()["problems"]
    assert "lemonbus upgrade" in problem
    answer = server.client.chat(TALES)
    assert (answer.status, answer.error["code"]) == (503, "restart_needed")
    assert answer.headers["retry-after"]
    assert server.client.chat(CHAT).text == CHAT_TEXT, "what is loaded is served"
    lines = [line for line in server.lines if line["event"] == "restart the server"]
    assert [line["level"] for line in lines] == ["error"]
