"""``/readyz`` of a real server: after the start, for one model, and while its supervisor is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program_by_model
from tests.faults.supervisors.recoveries import kill_supervisor, present_health
from tests.support.models.tiny_models import link_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, NONSENSE = "extra.tiny-chat", "extra.nonsense"


def readiness(server: LemonbusServer, query: str = "") -> tuple[int, dict[str, Any]]:
    answer = server.client.get(f"/readyz{query}")
    return answer.status, answer.json()


def awaited(server: LemonbusServer) -> list[str]:
    return [each["model"] for each in readiness(server)[1]["models"]]


def test_it_is_ready_when_each_model_for_the_start_is_loaded_or_has_failed_for_good(
    start_server: StartServer, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    link_models(models, "tiny-chat")
    (models / "nonsense.gguf").write_bytes(b"<html>404 Not Found</html>" * 100)
    engine = program_by_model(tmp_path, {"tiny-chat": "slow_start"})
    server = start_server(
        *("tiny-chat",),
        extra_models_dir=str(models),
        load=[CHAT, NONSENSE],
        llamacpp_backend="system",
        llama_server=engine,
        gateway_workers=2,
    )
    wait_for(lambda: awaited(server) == [CHAT], "the file that is not a model has failed for good")
    status, body = readiness(server)
    assert (status, body["status"]) == (503, "not_ready")
    assert server.client.get("/health").status == 200, "requests are accepted, and wait for their model"
    wait_for(lambda: any(NONSENSE in each for each in server.health()["problems"]), "health names it")
    kill_supervisor(server)
    wait_for(lambda: awaited(server) == [CHAT], "the next supervisor goes on with the start")
    pid = server.engine_pid(CHAT)

    def is_ready() -> bool:
        os.kill(pid, signal.SIGCONT)
        return readiness(server)[0] == 200

    wait_for(is_ready, "its last model is loaded")
    assert readiness(server) == (200, {"status": "ready", "reason": "", "models": []})
    kill_supervisor(server)
    for _ in range(10):
        assert readiness(server)[0] == 200, "of either gateway, and before it has asked the next supervisor"
    assert any(NONSENSE in each for each in present_health(server)["problems"]), "the next supervisor still knows it"
    assert readiness(server, f"?model={CHAT}")[0] == 200
    assert server.client.post("/v1/unload", {"model": CHAT}).status == 200
    status, body = readiness(server, f"?model={CHAT}")
    assert (status, body["models"]) == (503, [{"model": CHAT, "state": "absent", "reason": ""}])
    status, body = readiness(server, f"?model={NONSENSE}")
    assert (status, body["models"][0]["model"]) == (503, NONSENSE)
    assert readiness(server)[0] == 200, "a model that is unloaded is loaded again by its next request"
    assert server.client.get("/readyz?model=unknown").status == 404
    models.rename(tmp_path / "elsewhere")
    assert server.client.get("/v1/models").status == 200
    assert any(f"extra_models_dir {models} cannot be read" in each for each in server.health()["problems"])
