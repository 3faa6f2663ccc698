"""Streams of NDJSON when something dies: an error in the last line, and never ``"done": true``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines import llama_server
from tests.support import processes
from tests.support.http_exchange import HttpExchange
from tests.support.ndjson import lines
from tests.support.ollama_client import ollama_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"
MESSAGES = [{"role": "user", "content": "Hello"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/api/generate": {"model": LOOP, "prompt": "Hello", "max_tokens": 6000, "stream": True},
    "/api/chat": {"model": LOOP, "messages": MESSAGES, "max_tokens": 6000, "stream": True},
}


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-loop", gateway_workers=1)


@pytest.fixture
def server(module_server: LemonbusServer) -> LemonbusServer:
    """A server whose model is loaded, however the last test left it."""
    assert module_server.client.post("/v1/load", {"model_name": LOOP}).status == 200
    return module_server


def started(server: LemonbusServer, path: str, label: str = "r") -> HttpExchange:
    """A stream of which some lines have come."""
    stream = server.client.start("POST", path, REQUESTS[path], {"X-Request-ID": label})
    return stream.until(lambda it: it.body.count(b"\n") > 5)


@pytest.mark.parametrize("victim", ["engine", "worker"])
@pytest.mark.parametrize("path", REQUESTS)
def test_the_last_line_of_a_broken_stream_is_an_error(server: LemonbusServer, path: str, victim: str) -> None:
    stream = started(server, path, "told-1")
    processes.kill(server.engine_pid(LOOP) if victim == "engine" else server.worker_pid(LOOP))
    stream.finish(5)
    *pieces, error = lines(stream)
    assert not any(line["done"] for line in pieces)
    assert isinstance(error["error"], str)
    assert error["code"] in ("backend_died", "worker_gone")
    assert (error["request_id"], error["model"]) == ("told-1", LOOP)
    assert error["tokens_sent"] == len(pieces)
    assert "done" not in error


def test_ollamas_client_raises_it(server: LemonbusServer) -> None:
    import ollama  # noqa: PLC0415 - only where it is needed

    client = ollama_client(server)
    stream = client.chat(model=LOOP, messages=MESSAGES, stream=True, options={"num_predict": 6000})
    next(stream)
    processes.kill(server.engine_pid(LOOP))
    with pytest.raises(ollama.ResponseError, match=r"killed|died|gone"):
        list(stream)
    client.close()


@pytest.mark.parametrize("path", REQUESTS)
def test_a_client_that_hangs_up_stops_its_generation(server: LemonbusServer, path: str) -> None:
    stream = started(server, path)
    assert server.busy_slots(LOOP) == 1
    stream.hang_up()
    wait_for(lambda: server.busy_slots(LOOP) == 0, "the engine is idle")


def test_an_engine_that_dies_on_every_try_is_a_model_error(start_server: StartServer, tmp_path: Path) -> None:
    program = llama_server.program(tmp_path, "crashes_on_prompt")
    server = start_server("tiny-loop", llamacpp_backend="system", llama_server=program)
    for stream in (True, False):
        answer = server.client.post("/api/generate", {"model": LOOP, "prompt": "POISON", "stream": stream})
        assert (answer.status, list(answer.json())) == (500, ["error"]), answer
        assert answer.json()["error"]["type"] == "model_error"
        server.wait_loaded(LOOP)
