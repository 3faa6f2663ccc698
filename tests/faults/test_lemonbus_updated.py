"""Another version is installed under a running server: the cure is told, and nothing waits for ever."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from protocol import VERSION
from tests.conftest import StartServer
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import ROOT
from tests.support.waiting import wait_for

CHAT, TALES = "extra.tiny-chat", "extra.tiny-tale"


def test_another_protocol_version_under_a_running_server(start_server: StartServer, tmp_path: Path) -> None:
    for package in ("protocol", "supervisor", "workers", "gateway"):
        shutil.copytree(ROOT / package, tmp_path / package)
    server = start_server("tiny-chat", "tiny-tale", root=tmp_path, load=[CHAT])
    server.wait_loaded(CHAT)
    in_use = server.worker_pid(CHAT)
    wait_for(lambda: len(server.workers()) > 1, "a spare worker runs")
    marker = tmp_path / "protocol" / "__init__.py"
    marker.write_text(re.sub(r"^VERSION = \d+", f"VERSION = {VERSION + 1}", marker.read_text(), flags=re.MULTILINE))
    for worker in server.workers():
        if worker.pid != in_use:
            processes.kill(worker.pid)
    wait_for(lambda: server.state()["problems"], "health tells the problem")
    (problem,) = server.state()["problems"]
    assert "restart the server" in problem
    answer = server.client.chat(TALES)
    assert (answer.status, answer.error["code"]) == (503, "restart_needed")
    assert answer.headers["retry-after"]
    assert server.client.chat(CHAT).text == CHAT_TEXT, "what is loaded is served"
    lines = [line for line in server.lines if line["event"] == "restart the server"]
    assert [line["level"] for line in lines] == ["error"]
