"""SIGSTOP of the job that reads the headers of model files, as on a dead disk: calls are answered without the headers."""

from __future__ import annotations

import time
from typing import Any

from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.processes import ProcessInfo
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

SILENCE_S = 3.0
JOB = "workers.jobs.describe"


def running_job(server: LemonbusServer) -> ProcessInfo | None:
    # Not the whole process tree: the job must be stopped while its Python is still starting.
    return next((each for each in processes.children(server.supervisor_pid) if each.mentions(JOB)), None)


def families(answer: HttpExchange) -> dict[str, Any]:
    assert answer.status == 200, answer
    return {each["name"].removesuffix(":latest"): each["details"]["family"] for each in answer.json()["models"]}


def test_a_stopped_job_is_replaced_and_its_calls_are_answered(start_server: StartServer) -> None:
    server = start_server("tiny-chat", "tiny-embed", peer_silence=SILENCE_S)
    processes.kill(server.fork_server_pid)  # the job is not forked, so it takes a while until it reads
    call = server.client.start("GET", "/api/tags")
    job = wait_for(lambda: running_job(server), "a job reads the files")
    with processes.stopped(job.pid):
        shown = families(call.finish(12))
    assert shown == {"extra.tiny-chat": "", "extra.tiny-embed": "bert"}, (
        "only the file at which it hung is not described"
    )
    wait_for(lambda: processes.look(job.pid) is None, "it was killed")
    began = time.monotonic()
    assert families(server.client.get("/api/tags")) == shown
    assert time.monotonic() - began < SILENCE_S, "no call waits for that file again"
    hung = [line for line in server.lines if line["event"] == "job hangs at a model file"]
    assert [line["path"].endswith("tiny-chat.gguf") for line in hung] == [True]
