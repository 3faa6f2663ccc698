"""Streams of NDJSON when something dies: an error in the last line, and never ``"done": true``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.conftest import CALM, LOOP, one_death_noted
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.clients.ndjson import lines
from tests.support.clients.ollama_client import ollama_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MESSAGES = [{"role": "user", "content": "Hello"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/api/generate": {"model": LOOP, "prompt": "Hello", "max_tokens": 60_000, "stream": True},
    "/api/chat": {"model": LOOP, "messages": MESSAGES, "max_tokens": 60_000, "stream": True},
}


def started(server: LemonbusServer, path: str, label: str = "r") -> HttpExchange:
    """A stream that has begun: some lines have arrived."""
    stream = server.client.start("POST", path, REQUESTS[path], {"X-Request-ID": label})
    return stream.until(lambda it: it.body.count(b"\n") > 5)


@pytest.mark.parametrize(("path", "victim"), [("/api/generate", "worker"), ("/api/chat", "engine")])
def test_the_last_line_of_a_broken_stream_is_an_error(loop_server: LemonbusServer, path: str, victim: str) -> None:
    stream = started(loop_server, path, "told-1")
    processes.kill(loop_server.engine_pid(LOOP) if victim == "engine" else loop_server.worker_pid(LOOP))
    stream.finish()
    *pieces, error = lines(stream)
    assert not any(line["done"] for line in pieces)
    assert isinstance(error["error"], str)
    assert error["code"] in ("backend_died", "worker_gone")
    assert (error["request_id"], error["model"]) == ("told-1", LOOP)
    assert error["tokens_sent"] == len(pieces)
    assert "done" not in error


def test_ollamas_client_raises_it(calm_server: LemonbusServer) -> None:
    import ollama  # noqa: PLC0415 - only where it is needed

    client = ollama_client(calm_server)
    stream = client.chat(model=CALM, messages=MESSAGES, stream=True, options={"num_predict": 60_000})
    next(stream)
    processes.kill(calm_server.engine_pid(CALM))
    with pytest.raises(ollama.ResponseError, match=r"killed|died|gone"):
        list(stream)
    client.close()


@pytest.mark.parametrize("path", REQUESTS)
def test_a_client_that_hangs_up_stops_its_generation(loop_server: LemonbusServer, path: str) -> None:
    stream = started(loop_server, path)
    wait_for(lambda: loop_server.busy_slots(LOOP) == 1, "the engine works")
    stream.hang_up()
    wait_for(lambda: loop_server.busy_slots(LOOP) == 0, "the engine is idle")


def test_an_engine_that_dies_of_a_request_is_a_model_error(crashing_server: LemonbusServer) -> None:
    for stream in (True, False):
        assert crashing_server.client.post("/v1/load", {"model_name": "extra.tiny-chat"}).status == 200
        body = {"model": "extra.tiny-chat", "prompt": "POISON", "stream": stream}
        with one_death_noted(crashing_server):
            answer = crashing_server.client.post("/api/generate", body)
        assert (answer.status, list(answer.json())) == (500, ["error"]), answer
        assert answer.json()["error"]["type"] == "model_error"
