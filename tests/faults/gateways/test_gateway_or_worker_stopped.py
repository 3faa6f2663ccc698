"""SIGSTOP of a gateway or a worker under load: no other process slows down, and the stopped one is replaced."""

from __future__ import annotations

import time

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.faults.gateways.gateway_streams import streams_at_each
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"
SILENCE = 4
"""Seconds after which a silent process is replaced: longer than a process waits for a processor on a busy machine."""
CUT_OFF = 20.0
"""Seconds that the test waits for the server."""


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    engine = program(tmp_path_factory.mktemp("engine"), "slow_generation")
    return start_module_server("tiny-loop", "tiny-chat", slots=16, peer_silence=SILENCE, llama_server=engine)


@pytest.fixture
def server(module_server: LemonbusServer) -> LemonbusServer:
    """A server with both models and both gateways, whatever the last test has ended. The engine of tiny-loop is slow:

    its streams last as long as a test, and leave the processor to others.
    """
    for load in ({"model_name": LOOP, "llamacpp_backend": "system"}, {"model_name": CHAT}):
        assert module_server.client.post("/v1/load", load).status == 200
    wait_for(lambda: len(module_server.gateway_pids()) == 2, "two gateways serve")
    return module_server


def answers_at_once(server: LemonbusServer) -> None:
    for _ in range(10):
        start = time.monotonic()
        answer = server.client.chat(CHAT)
        assert answer.text == CHAT_TEXT
        assert time.monotonic() - start < SILENCE, "no request waited for the stopped one's end"


def test_a_stopped_gateway_slows_no_other_process(server: LemonbusServer) -> None:
    streams = streams_at_each(server, LOOP, 20, last_tokens=100_000)
    assert len(streams) == 2
    stopped = streams[-1][1]
    with processes.stopped(stopped):
        answers_at_once(server)
        for stream, gateway in streams:
            if gateway != stopped:
                assert stream.finish().done
        wait_for(lambda: stopped not in server.gateway_pids(), "the stopped one is replaced", CUT_OFF)
    for stream, gateway in streams:
        if gateway == stopped:
            assert not stream.finish().done
    wait_for(lambda: len(server.gateway_pids()) == 2, "two gateways serve again")
    wait_for(lambda: server.busy_slots(LOOP) == 0, "nothing is generated for the dead one")


def test_a_stopped_worker_slows_no_other_process(server: LemonbusServer) -> None:
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=8000)
    stream.until(lambda it: len(it.events) > 2)
    stopped = server.worker_pid(LOOP)
    with processes.stopped(stopped):
        answers_at_once(server)
        wait_for(lambda: not processes.alive(stopped), "the stopped one is ended", CUT_OFF)
    stream.finish()
    assert not stream.done
    assert stream.error["model"] == LOOP
    server.wait_loaded(LOOP)
    assert server.client.chat(LOOP, max_tokens=3).text == " 0 1 2"


def test_the_figures_of_a_request_follow_its_answer_beside_a_stopped_worker(server: LemonbusServer) -> None:
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=100_000)
    stream.until(lambda it: it.events)
    with processes.stopped(server.engine(LOOP).parent):
        for tokens in (1, 5):
            answer = server.client.chat(CHAT, max_tokens=tokens)
            start = time.monotonic()
            figures = server.client.get("/v1/stats").json()
            assert time.monotonic() - start < SILENCE, "the stopped worker is not waited for"
            assert figures["output_tokens"] == answer.json()["usage"]["completion_tokens"] == tokens
    stream.hang_up()
    wait_for(lambda: server.busy_slots(LOOP) == 0, "the worker goes on")


def test_a_stopped_gunicorn_master_is_replaced(server: LemonbusServer) -> None:
    """Without a master, no gateway worker is replaced, and ``/live`` is never answered."""
    master = server.gateway_master()
    with processes.stopped(master):
        for gateway in server.gateway_pids():
            processes.kill(gateway)
        wait_for(lambda: not processes.alive(master), "the stopped master is ended", CUT_OFF)
    wait_for(lambda: server.gateway_master() not in (0, master), "another master", CUT_OFF)
    wait_for(lambda: len(server.gateway_pids()) == 2, "its gateways serve")
    assert server.client.get("/live").status == 200
    (shown,) = [peer["pid"] for peer in server.state()["processes"] if peer["role"] == "gateway_master"]
    assert shown == server.gateway_master()
