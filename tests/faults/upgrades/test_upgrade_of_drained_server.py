"""A drained server is upgraded: the next release is drained as well, whichever of its processes dies, and what runs ends whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import RELEASE, VERSION
from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.installed_code import InstalledCode
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"


def assert_drained(server: LemonbusServer) -> None:
    """Several requests, because each gateway decides by itself. One that has just started says ``starting`` to probes."""
    for _ in range(6):
        refused = server.client.chat(LOOP)
        assert (refused.status, refused.error["code"]) == (503, "drained")
    wait_for(lambda: server.client.get("/readyz").json()["status"] == "drained", "load balancers are told")


def gateways_besides(server: LemonbusServer, others: set[int]) -> set[int]:
    """Return the gateways of all masters, without these: a former one keeps its running stream."""
    found = {each.pid: each.parent for each in server.process_tree() if each.runs("gateway")}
    return {pid for pid, parent in found.items() if parent in found} - others


def wait_for_gateways(server: LemonbusServer, others: set[int]) -> set[int]:
    def present() -> set[int]:
        found = gateways_besides(server, others)
        return found if len(found) == server.settings.gateway_workers else set()

    return wait_for(present, "all gateways are there", 60)


@pytest.mark.parametrize("version", [VERSION, VERSION - 1])
def test_a_drained_server_stays_drained(start_server: StartServer, tmp_path: Path, version: int) -> None:
    code = InstalledCode(tmp_path / "code")
    code.install(release="0.0.9", version=version)
    engine = program(tmp_path, "pauses_mid_stream")
    settings = {"load": [LOOP], "llamacpp_backend": "system", "llama_server": engine, "gateway_workers": 2}
    server = start_server("tiny-loop", root=code.folder, **settings)
    server.wait_loaded(LOOP)
    former = {*server.gateway_pids()}
    running = server.client.start_chat(LOOP, stream=True, max_tokens=9)
    running.until(lambda it: len(it.events) > 2)
    assert server.client.post("/internal/drain", {}).status == 200

    code.install(release=RELEASE, version=VERSION)
    server.client.start("POST", "/internal/upgrade", {}).finish(60)
    upgraded = wait_for_gateways(server, former)
    wait_for(lambda: server.health()["version"] == RELEASE, "the new release answers", 60)
    assert_drained(server)
    assert server.health()["status"] == "drained"

    kill_supervisor(server)
    for pid in upgraded:
        processes.kill(pid)
    wait_for_gateways(server, former | upgraded)
    assert_drained(server)

    with processes.stopped(server.engine_pid(LOOP)):
        pass
    assert running.finish(60).done
    assert server.client.post("/internal/undrain", {}).json()["drained"] is False
    wait_for(lambda: server.client.chat(LOOP, max_tokens=2).status == 200, "it serves again")
