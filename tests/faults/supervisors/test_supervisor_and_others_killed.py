"""The supervisor is killed at the same moment as another process, or while another process is stopped."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.fake_engines.generation.slow_generation import text_of
from tests.faults.conftest import CALM, LOOP
from tests.faults.supervisors.recoveries import kill_supervisor, recovered_since, recoveries
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"


def stream(server: LemonbusServer, model: str = LOOP, tokens: int = 60_000) -> HttpExchange:
    started = server.client.start_chat(model, stream=True, max_tokens=tokens)
    return started.until(lambda it: len(it.events) > 2)


def test_a_worker_dies_too(loop_server: LemonbusServer) -> None:
    cut = stream(loop_server)
    kill_supervisor(loop_server, loop_server.worker_pid(LOOP))
    cut.finish()
    assert not cut.done
    assert cut.error["code"] == "worker_gone"
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    loop_server.assert_idle()


def test_the_socket_of_a_worker_that_died_too_is_removed(loop_server: LemonbusServer) -> None:
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    before = sockets(loop_server)
    for socket in before:
        with contextlib.suppress(FileNotFoundError):  # another test has killed its worker
            os.utime(socket, (1.0, 1.0))
    for _ in range(3):  # so that no supervisor lives for long
        kill_supervisor(loop_server, *(each.pid for each in loop_server.workers()))
    wait_for(lambda: not before & sockets(loop_server), "the sockets of the dead workers are gone")
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    loop_server.assert_idle()


def sockets(server: LemonbusServer) -> set[Path]:
    """The sockets of workers."""
    return set(server.runtime.glob("w-*"))


def test_an_engine_dies_too(loop_server: LemonbusServer) -> None:
    cut, worker = stream(loop_server), loop_server.worker_pid(LOOP)
    kill_supervisor(loop_server, loop_server.engine_pid(LOOP))
    cut.finish()
    assert not cut.done
    assert cut.error["code"] == "backend_died"
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    assert loop_server.worker_pid(LOOP) == worker
    loop_server.assert_idle()


def test_a_gateway_dies_too(calm_server: LemonbusServer) -> None:
    lost = stream(calm_server, CALM)
    gateway = calm_server.gateway_of(lost)
    kept = stream(calm_server, CALM, 20)
    while calm_server.gateway_of(kept) == gateway:
        kept.hang_up()
        kept = stream(calm_server, CALM, 20)
    kill_supervisor(calm_server, gateway)
    assert kept.finish(60).done
    assert kept.text == text_of(20)
    lost.finish()
    assert not lost.done
    calm_server.assert_idle()


def test_gunicorns_master_dies_too(loop_server: LemonbusServer) -> None:
    engine = loop_server.engine_pid(LOOP)
    kill_supervisor(loop_server, loop_server.gateway_master())
    wait_for(lambda: loop_server.client.get("/health", patience=30.0).status == 200, "a gateway serves")
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    assert loop_server.engine_pid(LOOP) == engine
    loop_server.assert_idle()


def test_a_stopped_worker_is_not_waited_for_forever(calm_server: LemonbusServer) -> None:
    server = calm_server
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    engine, worker = server.engine_pid(CALM), server.worker_pid(CHAT)
    kept = stream(server, CALM, 30)
    processes.stop(worker)
    line = kill_supervisor(server)
    wait_for(lambda: not processes.alive(worker), "it was killed")
    assert kept.finish(60).done
    assert server.engine_pid(CALM) == engine
    assert server.client.chat(CHAT, max_tokens=3).status == 200
    assert len(line["killed"]) == 1
    assert line["milliseconds"] >= 1900


def test_a_stopped_supervisor_is_replaced(calm_server: LemonbusServer) -> None:
    engine, before = calm_server.engine_pid(CALM), len(recoveries(calm_server))
    kept = stream(calm_server, CALM)
    processes.stop(calm_server.supervisor_pid)
    waiting = calm_server.client.start_chat(CALM, max_tokens=3)
    recovered_since(calm_server, before)
    assert waiting.finish(30).status == 200
    before = len(kept.events)
    kept.until(lambda it: len(it.events) > before)
    kept.hang_up()
    assert calm_server.engine_pid(CALM) == engine
    calm_server.assert_idle()


def test_an_unload_is_answered(calm_server: LemonbusServer) -> None:
    engine = calm_server.engine_pid(CALM)
    with processes.stopped(engine):  # the stream does not end meanwhile
        running = calm_server.client.start_chat(CALM, stream=True, max_tokens=3)
        wait_for(lambda: calm_server.state()["granted"] == 1, "it runs")
        unload = calm_server.client.start("POST", "/v1/unload", {"model_name": CALM})
        wait_for(lambda: calm_server.model_state(CALM) == "draining", "it waits for the stream")
        kill_supervisor(calm_server)
    assert running.finish(60).done
    assert unload.finish(30).status == 200
    # Not that none is loaded: a worker that has no time to report is killed, and its request loads the model again.
    wait_for(lambda: not processes.alive(engine), "it is unloaded")


def test_stored_responses_can_be_continued(loop_server: LemonbusServer) -> None:
    body = {"model": LOOP, "input": "hi", "max_output_tokens": 3}
    first = loop_server.client.post("/v1/responses", body).json()
    kill_supervisor(loop_server)
    kill_supervisor(loop_server)
    second = loop_server.client.post("/v1/responses", {**body, "previous_response_id": first["id"]})
    assert second.status == 200
    assert loop_server.client.get(f"/v1/responses/{first['id']}").json()["output"] == first["output"]


def test_a_response_in_the_background_goes_on(calm_server: LemonbusServer) -> None:
    body = {"model": CALM, "input": "hi", "max_output_tokens": 3, "background": True}
    with processes.stopped(calm_server.engine_pid(CALM)):  # it does not end meanwhile
        begun = calm_server.client.post("/v1/responses", body).json()
        path = f"/v1/responses/{begun['id']}"
        wait_for(lambda: calm_server.state()["granted"], "it runs")
        kill_supervisor(calm_server)
        assert calm_server.client.get(path).json()["status"] == "in_progress"
    wait_for(lambda: calm_server.client.get(path).json()["status"] not in ("queued", "in_progress"), "it ends", 60.0)
    assert calm_server.client.get(path).json()["status"] in ("completed", "incomplete")
    calm_server.assert_idle()
