"""A drain of a real server: no new requests, the accepted ones end, and it outlives supervisors but not the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fake_engines.llama_server import program
from tests.faults.supervisors.recoveries import kill_supervisor, recovered_since, recoveries
from tests.support import processes
from tests.support.configuration_file import ConfiguredServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"


def drain_state(server: ConfiguredServer) -> dict[str, Any]:
    found: dict[str, Any] = server.client.get("/internal/drain").json()
    return found


def probe_has(server: ConfiguredServer, status: str) -> Callable[[], bool]:
    """Return whether one gateway, whichever answers, says this to load balancers: it may have to hear of it first."""
    return lambda: bool(server.client.get("/readyz").json()["status"] == status)


def assert_refuses(server: ConfiguredServer) -> None:
    """Every gateway refuses new requests at once, and says so to load balancers soon."""
    for _ in range(6):
        refused = server.client.chat(LOOP)
        assert (refused.status, refused.error["code"]) == (503, "drained")
        assert int(refused.headers["retry-after"]) >= 1
        wait_for(probe_has(server, "drained"), "it is not ready")


def test_a_drain_lets_accepted_requests_end_and_lasts_until_it_is_ended(tmp_path: Path) -> None:
    engine = program(tmp_path, "pauses_mid_stream")
    settings = {"slots": 1, "load": [LOOP], "llamacpp_backend": "system", "llama_server": engine}
    with ConfiguredServer("tiny-loop", gateway_workers=2, **settings) as server:
        server.wait_loaded(LOOP)
        running = server.client.start_chat(LOOP, stream=True, max_tokens=9)
        running.until(lambda it: len(it.events) > 2)
        waiting = server.client.start_chat(LOOP, stream=True, max_tokens=2)
        wait_for(lambda: server.state()["queued"] == 1, "one waits")
        for _ in range(2):
            drained = server.client.post("/internal/drain", {}).json()
            assert drained == {"drained": True, "running": 1, "queued": 1}, "a second one changes nothing"
        assert_refuses(server)
        health = server.health()
        assert (health["status"], health["lemonbus"]["drained"]) == ("drained", True)
        assert b"\nlemonbus_drained 1.0\n" in server.client.get("/metrics").body
        assert (health["lemonbus"]["granted"], health["lemonbus"]["queued"]) == (1, 1)

        kill_supervisor(server)
        assert_refuses(server)
        wait_for(lambda: drain_state(server) == drained, "the next supervisor knows everything")
        before = len(recoveries(server))
        server.configure(queue_requests=7)
        assert server.reload()["changes"]
        recovered_since(server, before)
        assert_refuses(server)

        with processes.stopped(server.engine_pid(LOOP)):
            pass
        assert running.finish(60).done
        assert waiting.finish(60).done
        wait_for(lambda: drain_state(server) == {"drained": True, "running": 0, "queued": 0}, "nothing is left")
        assert server.client.post("/v1/unload", {"model": LOOP}).status == 200, "an operator may do everything"
        assert server.client.post("/v1/load", {"model": LOOP}).status == 200
        assert server.client.post("/internal/undrain", {}).json()["drained"] is False

        def serves() -> bool:
            return server.client.chat(LOOP, max_tokens=2).status == 200

        wait_for(serves, "the gateways know it")
        assert server.health()["status"] == "ok"
        wait_for(probe_has(server, "ready"), "it is ready again")
