"""SIGKILL and SIGBUS of engines: health keeps how often, when and why they died, even under the next supervisor."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from tests.conftest import StartServer
from tests.faults.conftest import LOOP
from tests.faults.supervisors.recoveries import kill_supervisor, present_health
from tests.support import processes
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def deaths(server: LemonbusServer) -> dict[str, Any]:
    """The report about the loop model; its count is 0 if none of its engines has died."""
    found = present_health(server)["lemonbus"]["engine_deaths"]
    return next((each for each in found if each["model"] == LOOP), {"count": 0, "last": []})


def test_deaths_are_reported_and_survive_the_supervisor(loop_server: LemonbusServer) -> None:
    server, began = loop_server, time.monotonic()
    before = deaths(server)["count"]
    for number in (1, 2):
        pid = server.engine_pid(LOOP)
        processes.kill(pid)
        wait_for(lambda number=number: deaths(server)["count"] >= before + number, "it is counted")  # type: ignore[misc]
        assert server.client.chat(LOOP, max_tokens=3).status == 200, "it is loaded again"
    known = deaths(server)
    assert server.state()["engine_deaths"][0]["model"] == LOOP, "the model whose engine died last comes first"
    for death in known["last"][:2]:
        assert 0 <= death["age"] <= time.monotonic() - began
        assert death["code"] in ("backend_died", "out_of_memory")
        assert "SIGKILL" in death["reason"]
    kill_supervisor(server)
    after = deaths(server)
    assert after["count"] == known["count"]
    for before_it, death in zip(known["last"], after["last"], strict=True):
        assert death["age"] >= before_it["age"]
        assert {**death, "age": 0} == {**before_it, "age": 0}


def test_no_request_is_blamed_for_a_truncated_file(start_server: StartServer, tmp_path: Path) -> None:
    file = tmp_path / "tiny-loop.gguf"
    shutil.copy(tiny_models() / "models" / file.name, file)
    server = start_server(extra_models_dir=str(tmp_path), load=[LOOP])
    server.wait_loaded(LOOP)
    assert server.client.chat(LOOP, max_tokens=3).status == 200
    os.truncate(file, 4096)
    answers = [server.client.chat(LOOP, max_tokens=3) for _ in range(2)]
    assert [each.error["code"] for each in answers] == ["model_unusable", "model_unusable"]
    (death,) = deaths(server)["last"]
    assert "was killed by SIGBUS, probably because its model's file was truncated" in death["reason"]
