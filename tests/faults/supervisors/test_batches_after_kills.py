"""A batch while its processes are killed, and after a restart: each line has one result, and what was finished is not run again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"
LINES = 80
SLOTS = 2
LONG_S = 120.0


def batch_job(server: LemonbusServer) -> int:
    """Return the pid of the job that works batches off, once there is one."""

    def found() -> list[int]:
        return [each.pid for each in processes.of_server(server.runtime) if each.runs("workers.jobs.run_batches")]

    wait_for(found, "a job runs", LONG_S)
    return found()[0]


def whole_lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_no_result_is_lost_or_doubled(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("tiny-loop", state_dir=str(tmp_path), slots=SLOTS, peer_silence=10.0)
    body = {"model": LOOP, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 40}
    ids = [f"line-{number}" for number in range(LINES)]
    requests = [
        json.dumps({"custom_id": each, "method": "POST", "url": "/v1/chat/completions", "body": body}) for each in ids
    ]
    with openai_client(server) as client:
        file = client.files.create(file=("in.jsonl", "\n".join(requests).encode()), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        client.files.delete(file.id)
    output = tmp_path / "batches" / batch.id / "output.jsonl"

    def worked_off(more: int) -> None:
        before = whole_lines(output)
        wait_for(lambda: whole_lines(output) >= min(LINES, before + more), f"{more} more lines have results", LONG_S)

    worked_off(5)
    processes.kill(batch_job(server))
    worked_off(5)
    server.kill_supervisor()
    worked_off(5)
    os.kill(server.gateway_pids()[0], signal.SIGKILL)
    worked_off(5)
    processes.kill(server.engine_pid(LOOP))
    worked_off(5)
    server.kill_keeper()
    server.expect_exit_code(-signal.SIGKILL)
    kills = 5
    with output.open("ab") as half:
        half.write(b'{"id":"batch_req_half","custom_id":"line-79","resp')

    again = start_server("tiny-loop", state_dir=str(tmp_path), slots=SLOTS)
    with openai_client(again) as client:
        wait_for(lambda: client.batches.retrieve(batch.id).status == "completed", "the batch is complete", LONG_S)
        done = client.batches.retrieve(batch.id)
        lines = client.files.content(done.output_file_id or "").text.splitlines()
        assert done.error_file_id is None
    assert sorted(json.loads(line)["custom_id"] for line in lines) == sorted(ids)
    answered = [
        line["request_id"]
        for each in (server, again)
        for line in each.lines
        if str(line.get("request_id", "")).startswith(batch.id) and line.get("status") == 200
    ]
    assert len(answered) <= LINES + SLOTS * kills, "only what ran at the moment is run again"
