"""SIGKILL of the supervisor alone: streams go on, waiting requests are served, no model is loaded again, and no process is left.

SIGTERM around its death: ``tests/server/operation/test_keeper.py``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.conftest import StartServer
from tests.fake_engines.generation.slow_generation import text_of
from tests.fake_engines.llama_server import program
from tests.faults.conftest import CALM, LOOP
from tests.faults.supervisors.recoveries import kill_supervisor, present_health
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"


def test_streams_and_waiting_requests_do_not_notice(loop_server: LemonbusServer) -> None:
    server = loop_server
    engine = server.engine_pid(LOOP)
    with processes.stopped(engine):
        running = [server.client.start_chat(LOOP, stream=True, max_tokens=40) for _ in range(4)]
        wait_for(lambda: server.state()["granted"] == 4, "they run")
        waiting = [server.client.start_chat(LOOP, max_tokens=20) for _ in range(8)]
        wait_for(lambda: server.state()["queued"] == 8, "the others wait")
        line = kill_supervisor(server)
        wait_for(lambda: present_health(server)["lemonbus"]["queued"] == 8, "they wait again")
        assert present_health(server)["lemonbus"]["granted"] == 4
    for exchange in (*running, *waiting):
        exchange.finish(60)
        assert exchange.status == 200, exchange
        assert exchange.complete
    assert all(stream.done for stream in running)
    assert {stream.text for stream in running} == {2 * CHAT_TEXT}
    assert {whole.text for whole in waiting} == {CHAT_TEXT}
    assert server.engine_pid(LOOP) == engine, "it was not loaded again"
    server.assert_idle()
    assert (line["attempts"], line["killed"]) == (4, [])


def test_the_servers_uptime_goes_on(loop_server: LemonbusServer) -> None:
    server = loop_server
    before = server.client.get("/status").json()["uptime_secs"]
    kill_supervisor(server)
    assert present_health(server)["lemonbus"]["uptime_seconds"] >= before
    assert server.client.get("/status").json()["uptime_secs"] >= before
    assert server.client.get("/api/system/status").json()["uptime_secs"] >= before
    metrics = server.client.get("/metrics?mullama=true").body.decode().splitlines()
    (line,) = [each for each in metrics if each.startswith("mullama_uptime_seconds ")]
    assert float(line.split()[1]) >= before


def test_a_load_goes_on(loop_server: LemonbusServer) -> None:
    server = loop_server
    server.client.post("/v1/unload", {"model_name": CHAT})
    wait_for(lambda: not server.engine_now(CHAT), "it is not loaded")
    request = server.client.start_chat(CHAT, max_tokens=3)
    engine = server.engine_pid(CHAT)
    with processes.stopped(engine):
        kill_supervisor(server)
    request.finish(60)
    assert request.status == 200
    assert server.engine_pid(CHAT) == engine
    server.assert_idle()


def test_an_eviction_goes_on(pausing_server: LemonbusServer) -> None:
    server = pausing_server
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=9)
    stream.until(lambda it: len(it.events) > 2)
    with processes.stopped(server.engine_pid(LOOP)):
        other = server.client.start_chat(CHAT, max_tokens=3)
        wait_for(lambda: server.model_state(LOOP) == "draining", "it is to be evicted when its stream has ended")
        kill_supervisor(server)
    for exchange in (stream, other):
        exchange.finish(60)
        assert exchange.status == 200, exchange
    assert stream.done
    server.assert_idle()


def test_again_and_again(calm_server: LemonbusServer) -> None:
    server = calm_server
    engine = server.engine_pid(CALM)
    started = [(server.client.start_chat(CALM, stream=True, max_tokens=30), 30) for _ in range(3)]
    for stream, _ in started:
        stream.until(lambda it: len(it.events) > 2)
    for _ in range(3):
        started += [(server.client.start_chat(CALM, stream=True, max_tokens=3), 3) for _ in range(4)]
        kill_supervisor(server)
    for stream, tokens in started:
        stream.finish(100)
        assert stream.status == 200, stream
        assert stream.done
        assert stream.text == text_of(tokens)
    assert server.engine_pid(CALM) == engine
    server.assert_idle()


def test_models_of_the_start_are_loaded_by_the_next_one(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat", max_loaded_models=2, load=[LOOP, CHAT], wait=False)
    wait_for(lambda: any(line["event"] == "starting" for line in server.lines), "the first one has begun")
    server.kill_supervisor()
    server.wait_ready()
    server.wait_loaded(LOOP, CHAT)
    server.client.post("/v1/unload", {"model_name": CHAT})
    wait_for(lambda: not server.engine_now(CHAT), "it is unloaded")
    kill_supervisor(server)
    server.assert_idle()
    assert server.model_state(LOOP) == "ready"
    assert not server.engine_now(CHAT), "it was loaded at the start, not at each take-over"


def test_a_load_under_way_is_as_old_as_it_was(start_server: StartServer, tmp_path: Path) -> None:
    engine = program(tmp_path, "slow_start")
    server = start_server("tiny-chat", llama_server=engine, llamacpp_backend="system")
    request = server.client.start_chat(CHAT, max_tokens=1)

    def age() -> float:
        (load,) = wait_for(lambda: present_health(server)["lemonbus"]["loads"], "it is being loaded")
        return float(load["age_seconds"]) if load["stage"] == "starting" else 0.0

    wait_for(lambda: age() > 3.0, "it is old enough to be told from one that begins with the take-over")
    before = age()
    kill_supervisor(server)
    assert age() >= before
    engine_pid = server.engine_pid(CHAT)

    def is_ready() -> bool:
        os.kill(engine_pid, signal.SIGCONT)  # it may have been too early the last time
        return server.model_state(CHAT) == "ready"

    wait_for(is_ready, "the load goes on")
    request.finish()
    assert request.status == 200
