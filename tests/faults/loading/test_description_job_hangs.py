"""The job that reads the headers of model files hangs at one, as on a dead disk: calls are answered without that header."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.conftest import StartServer
from tests.support.clients.http_exchange import HttpExchange
from tests.support.installed_code import InstalledCode
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

SILENCE_S = 3.0
JOB = "workers.jobs.describe"
HANGS = """
import time
_whole = describe
def describe(path):
    if path.endswith("tiny-embed.gguf"):
        time.sleep(600)
    return _whole(path)
"""
"""Code at the end of the module that reads a file."""


def running_jobs(server: LemonbusServer) -> list[int]:
    return [each.pid for each in server.process_tree() if each.runs(JOB)]


def families(answer: HttpExchange) -> dict[str, Any]:
    assert answer.status == 200, answer
    return {each["name"].removesuffix(":latest"): each["details"]["family"] for each in answer.json()["models"]}


def test_a_job_that_hangs_is_replaced_and_its_calls_are_answered(start_server: StartServer, tmp_path: Path) -> None:
    code = InstalledCode(tmp_path)
    code.append("workers/files/description.py", HANGS)
    server = start_server("tiny-chat", "tiny-embed", "tiny-loop", root=code.folder, peer_silence=SILENCE_S)
    shown = families(server.client.get("/api/tags"))
    assert shown == {"extra.tiny-chat": "llama", "extra.tiny-embed": "", "extra.tiny-loop": "llama"}, (
        "only the file at which it hung is not described"
    )
    hung = [line for line in server.lines if line["event"] == "job hangs at a model file"]
    assert [line["path"].endswith("tiny-embed.gguf") for line in hung] == [True]
    wait_for(lambda: not running_jobs(server), "it was killed, and the other one has ended")
    began = time.monotonic()
    assert families(server.client.get("/api/tags")) == shown
    assert time.monotonic() - began < SILENCE_S, "no call waits for that file again"
    assert len([line for line in server.lines if line["event"] == "job hangs at a model file"]) == 1
