"""A client that reads a byte a second uses bounded memory and slows no other client."""

from __future__ import annotations

import time

import pytest

from tests.conftest import StartServer
from tests.fake_engines.generation.large_output import PIECE
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

FLOOD, CHAT = "extra.tiny-tale", "extra.tiny-chat"
MOST = 40_000_000
"""Bytes by which the whole server may grow, for an answer of 64 million."""


@pytest.fixture
def server(module_server: LemonbusServer) -> LemonbusServer:
    """A server with tiny-chat, and a fresh engine for tiny-tale whose answers are very long."""
    assert module_server.client.post("/v1/unload", {}).status == 200
    for load in ({"model_name": CHAT}, {"model_name": FLOOD, "llamacpp_backend": "system"}):
        loaded = module_server.client.post("/v1/load", load)
        assert loaded.status == 200, loaded
    return module_server


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    engine = program(tmp_path_factory.mktemp("engine"), "large_output")
    return start_module_server("tiny-tale", "tiny-chat", llama_server=engine, gateway_workers=1)


def test_a_slow_client_is_cut_off(server: LemonbusServer) -> None:
    assert server.client.chat(CHAT).text == CHAT_TEXT
    ours = [server.supervisor_pid, *server.gateway_pids(), *(worker.pid for worker in server.workers())]
    before = sum(processes.memory(pid) for pid in ours)

    slow = server.client.start_chat(FLOOD, stream=True, receive_buffer=4096)
    slow.read(most=1)
    longest = most = 0.0
    deadline = time.monotonic() + 60
    while server.state()["granted"]:
        assert time.monotonic() < deadline, "the slow client still holds its grant"
        slow.read(most=1)
        start = time.monotonic()
        assert server.client.chat(CHAT).text == CHAT_TEXT
        longest = max(longest, time.monotonic() - start)
        most = max(most, sum(processes.memory(pid) for pid in ours) - before)
    assert longest < 10, "no other client waits for the slow one"
    assert most < MOST, f"the server grew by {most:.0f} bytes"
    wait_for(lambda: server.busy_slots(FLOOD) == 0, "the engine has stopped")
    slow.finish()
    assert not slow.done
    assert not slow.complete


def test_an_answer_that_fits_the_inbox_is_complete_however_large_its_pieces(server: LemonbusServer) -> None:
    for stream in (True, False):
        flood = server.client.start_chat(FLOOD, stream=stream, max_tokens=3).finish(60)
        assert flood.complete
        assert flood.done == stream
        assert len(flood.text) == 3 * len(PIECE)
