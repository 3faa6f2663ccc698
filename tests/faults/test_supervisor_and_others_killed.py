"""The supervisor is killed in the same moment as another process, or while another one is stopped."""

from __future__ import annotations

import os
import signal

from tests.conftest import StartServer
from tests.support import processes
from tests.support.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"


def stream(server: LemonbusServer, tokens: int = 60_000) -> HttpExchange:
    started = server.client.start_chat(LOOP, stream=True, max_tokens=tokens)
    return started.until(lambda it: len(it.events) > 2)


def takeovers(server: LemonbusServer) -> int:
    return sum(line["event"] == "recovered" for line in server.lines)


def kill_together(server: LemonbusServer, *others: int) -> None:
    """Kill the supervisor and other processes; wait until the next supervisor has taken over."""
    before = takeovers(server)
    supervisor = server.supervisor_pid
    for pid in (supervisor, *others):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: takeovers(server) > before, "the next supervisor has taken over")


def test_a_worker_dies_too(loop_server: LemonbusServer) -> None:
    cut = stream(loop_server)
    kill_together(loop_server, loop_server.worker_pid(LOOP))
    cut.finish()
    assert not cut.done
    assert cut.error["code"] == "worker_gone"
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    loop_server.assert_idle()


def test_an_engine_dies_too(loop_server: LemonbusServer) -> None:
    cut, worker = stream(loop_server), loop_server.worker_pid(LOOP)
    kill_together(loop_server, loop_server.engine_pid(LOOP))
    cut.finish()
    assert not cut.done
    assert cut.error["code"] == "backend_died"
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    assert loop_server.worker_pid(LOOP) == worker
    loop_server.assert_idle()


def test_a_gateway_dies_too(loop_server: LemonbusServer) -> None:
    lost = stream(loop_server)
    gateway = loop_server.gateway_of(lost)
    kept = stream(loop_server, 2000)
    while loop_server.gateway_of(kept) == gateway:
        kept.hang_up()
        kept = stream(loop_server, 2000)
    kill_together(loop_server, gateway)
    assert kept.finish(60).done
    lost.finish()
    assert not lost.done
    loop_server.assert_idle()


def test_gunicorns_master_dies_too(loop_server: LemonbusServer) -> None:
    engine = loop_server.engine_pid(LOOP)
    kill_together(loop_server, loop_server.gateway_master())
    wait_for(lambda: loop_server.client.get("/health", patience=30.0).status == 200, "a gateway serves")
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200
    assert loop_server.engine_pid(LOOP) == engine
    loop_server.assert_idle()


def test_a_stopped_worker_is_not_waited_for_forever(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat", max_loaded_models=2, load=[LOOP, CHAT])
    server.wait_loaded(LOOP, CHAT)
    engine, worker = server.engine_pid(LOOP), server.worker_pid(CHAT)
    kept = stream(server, 600)
    os.kill(worker, signal.SIGSTOP)
    kill_together(server)
    wait_for(lambda: not processes.alive(worker), "it was killed")
    assert kept.finish(60).done
    assert server.engine_pid(LOOP) == engine
    assert server.client.chat(CHAT, max_tokens=3).status == 200
    (line,) = [line for line in server.lines if line["event"] == "recovered"]
    assert len(line["killed"]) == 1
    assert line["milliseconds"] >= 1900


def test_a_stopped_supervisor_is_replaced(loop_server: LemonbusServer) -> None:
    engine, before = loop_server.engine_pid(LOOP), takeovers(loop_server)
    kept = stream(loop_server, 20_000)
    os.kill(loop_server.supervisor_pid, signal.SIGSTOP)
    waiting = loop_server.client.start_chat(LOOP, max_tokens=3)
    wait_for(lambda: takeovers(loop_server) > before, "the keeper has replaced it", 30.0)
    assert waiting.finish(30).status == 200
    kept.hang_up()
    assert loop_server.engine_pid(LOOP) == engine
    loop_server.assert_idle()


def test_an_unload_is_answered(loop_server: LemonbusServer) -> None:
    running = stream(loop_server, 1500)
    unload = loop_server.client.start("POST", "/v1/unload", {"model_name": LOOP})
    wait_for(lambda: loop_server.model_state(LOOP) == "draining", "it waits for the stream")
    kill_together(loop_server)
    assert running.finish(60).done
    assert unload.finish(30).status == 200
    wait_for(lambda: not loop_server.engine_now(LOOP), "it is unloaded")


def test_a_pin_and_an_idle_time_stay(loop_server: LemonbusServer) -> None:
    def shown() -> tuple[bool, float]:
        (model,) = [each for each in loop_server.health()["all_models_loaded"] if each["model_name"] == LOOP]
        return model["pinned"], model["ttl"]

    loop_server.client.post("/v1/load", {"model_name": LOOP, "ttl": 5000, "pinned": False})
    assert loop_server.client.post("/v1/pin", {"model_name": LOOP, "pinned": True}).status == 200
    before = shown()
    kill_together(loop_server)
    assert shown() == before
    assert before[0] is True
    assert loop_server.client.post("/v1/pin", {"model_name": LOOP, "pinned": False}).status == 200
    kill_together(loop_server)
    assert shown() == (False, 5000)
    loop_server.client.post("/v1/unload", {"model_name": LOOP})


def test_stored_responses_can_be_continued(loop_server: LemonbusServer) -> None:
    body = {"model": LOOP, "input": "hi", "max_output_tokens": 3}
    first = loop_server.client.post("/v1/responses", body).json()
    kill_together(loop_server)
    kill_together(loop_server)
    second = loop_server.client.post("/v1/responses", {**body, "previous_response_id": first["id"]})
    assert second.status == 200
    assert loop_server.client.get(f"/v1/responses/{first['id']}").json()["output"] == first["output"]


def test_a_response_in_the_background_goes_on(loop_server: LemonbusServer) -> None:
    body = {"model": LOOP, "input": "hi", "max_output_tokens": 2000, "background": True}
    begun = loop_server.client.post("/v1/responses", body).json()
    path = f"/v1/responses/{begun['id']}"
    wait_for(lambda: loop_server.state()["granted"], "it runs")
    kill_together(loop_server)
    assert loop_server.client.get(path).json()["status"] == "in_progress"
    wait_for(lambda: loop_server.client.get(path).json()["status"] not in ("queued", "in_progress"), "it ends", 60.0)
    assert loop_server.client.get(path).json()["status"] in ("completed", "incomplete")
    loop_server.assert_idle()
