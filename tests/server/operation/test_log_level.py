"""``POST log-level``: all processes of a running server obey it, also after another supervisor has taken over; nothing is restarted."""

from __future__ import annotations

import itertools
import os
import signal

from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"
labels = (f"level-{number}" for number in itertools.count())


def processes_that_log(server: LemonbusServer, *levels: str) -> set[str]:
    """Send a chat, and return which processes have written lines of these levels since then."""
    before, label = len(server.lines), next(labels)
    assert server.client.start_chat(CHAT, {"X-Request-ID": label}).finish().status == 200
    assert server.client.get("/live").status == 200  # the only gateway has logged the chat when it answers this
    return {str(line["process"]) for line in server.lines[before:] if line["level"] in levels}


def lasting(server: LemonbusServer) -> set[int]:
    """The gateways and the engine with its worker."""
    gateways = {each.pid for each in server.process_tree() if each.runs("gateway")}
    return gateways | {server.engine_pid(CHAT)}


def test_all_processes_obey_without_a_restart(start_server: StartServer) -> None:
    server = start_server("tiny-chat", load=[CHAT], gateway_workers=1)
    wait_for(lambda: processes_that_log(server, "debug") >= {"gateway", "worker", "engine"}, "its level is debug")
    before = lasting(server)
    answer = server.client.post("/api/v1/log-level", {"level": "error"})
    assert (answer.status, answer.json()) == (200, {"status": "success", "level": "error"})
    wait_for(lambda: not processes_that_log(server, "debug", "info"), "all are silent")
    shown = server.client.get("/internal/settings").json()["settings"]["log_level"]
    assert shown == {"value": "error", "origin": "POST log-level"}

    predecessor = server.supervisor_pid
    os.kill(predecessor, signal.SIGKILL)
    wait_for(lambda: server.supervisor_pid != predecessor, "another supervisor runs")
    wait_for(lambda: not processes_that_log(server, "debug", "info"), "it has told the others the same level")
    assert server.client.get("/internal/settings").json()["settings"]["log_level"] == shown

    assert server.client.post("/v1/log-level", {"level": "debug"}).status == 200
    wait_for(lambda: processes_that_log(server, "debug") >= {"gateway", "worker", "engine"}, "all log again")
    assert lasting(server) == before


def test_a_new_gateway_has_the_present_level(start_server: StartServer) -> None:
    server = start_server("tiny-chat", load=[CHAT], gateway_workers=1, log_level="info")
    assert "gateway" not in processes_that_log(server, "debug")
    assert server.client.post("/v1/log-level", {"level": "debug"}).status == 200
    wait_for(lambda: "gateway" in processes_that_log(server, "debug"), "the level is debug")
    (gateway,) = [each["pid"] for each in server.state()["processes"] if each["role"] == "gateway"]
    os.kill(gateway, signal.SIGKILL)
    new = wait_for(
        lambda: [
            each["pid"] for each in server.state()["processes"] if each["role"] == "gateway" and each["pid"] != gateway
        ],
        "there is another one",
    )
    wait_for(lambda: "gateway" in processes_that_log(server, "debug"), "it logs at this level")
    assert any(line["level"] == "debug" and line["pid"] in new for line in server.lines)


def test_a_wrong_level_is_refused(shared_server: LemonbusServer) -> None:
    for body in ({"level": "loud"}, {"level": 3}, {}, {"level": "info", "module": "x"}):
        answer = shared_server.client.post("/v1/log-level", body)
        assert answer.status == 400, body
    assert "level" in shared_server.client.post("/v1/log-level", {"level": "loud"}).error["message"]
    assert shared_server.client.get("/v1/log-level").status == 405
