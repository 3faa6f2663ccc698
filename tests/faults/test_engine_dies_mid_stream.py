"""SIGKILL of the engine in mid-stream: the client is told in the stream, and the engine comes back unasked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.anthropic_client import anthropic_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-loop")


@pytest.fixture
def server(module_server: LemonbusServer) -> LemonbusServer:
    """A server whose model is loaded, however the last test left it."""
    assert module_server.client.post("/v1/load", {"model_name": LOOP}).status == 200
    return module_server


def test_the_client_is_told_and_the_engine_comes_back(server: LemonbusServer) -> None:
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=6000, headers={"X-Request-ID": "told-1"})
    stream.until(lambda it: len(it.events) > 5)
    first = server.engine_pid(LOOP)
    processes.kill(first)
    stream.finish(5)

    assert not stream.done
    assert stream.error["code"] == "backend_died"
    assert stream.error["model"] == LOOP
    assert stream.error["request_id"] == stream.headers["x-request-id"] == "told-1"
    pieces = [chunk for chunk in stream.chunks if chunk.get("choices") and chunk["choices"][0]["delta"].get("content")]
    assert stream.error["tokens_sent"] == len(pieces) > 0
    assert "error" in stream.events[-1].json(), "nothing comes after the error"

    second = wait_for(lambda: server.engine_now(LOOP), "a new engine").pid
    assert second != first
    server.wait_loaded(LOOP)
    assert server.client.chat(LOOP, max_tokens=3).status == 200


def test_anthropics_package_is_told(server: LemonbusServer) -> None:
    import anthropic  # noqa: PLC0415 - as in anthropic_client

    seen: list[str] = []
    engine = server.engine_pid(LOOP)

    def read(client: anthropic.Anthropic) -> None:
        hi: Any = [{"role": "user", "content": "Hi"}]
        for event in client.messages.create(model=LOOP, max_tokens=6000, messages=hi, stream=True):
            seen.append(event.type)
            if len(seen) == 5:
                processes.kill(engine)

    with anthropic_client(server) as client, pytest.raises(anthropic.APIStatusError) as caught:
        read(client)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", "api_error", "backend_died")
    assert body["error"]["model"] == LOOP
    assert body["request_id"] == caught.value.request_id
    assert seen[:2] == ["message_start", "content_block_start"]
    assert set(seen[2:]) == {"content_block_delta"}, "nothing says that the message ended"


def test_every_client_of_the_engine_is_told(server: LemonbusServer) -> None:
    streams = [server.client.start_chat(LOOP, stream=True, max_tokens=6000) for _ in range(4)]
    for stream in streams:
        stream.until(lambda it: len(it.events) > 2)
    processes.kill(server.engine_pid(LOOP))
    for stream in streams:
        stream.finish(5)
        assert stream.error["code"] == "backend_died"
        assert not stream.done


def test_a_killed_worker_is_told_like_a_killed_engine(server: LemonbusServer) -> None:
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=6000)
    stream.until(lambda it: len(it.events) > 5)
    worker, engine = server.worker_pid(LOOP), server.engine_pid(LOOP)
    processes.kill(worker)
    stream.finish(5)
    assert not stream.done
    assert stream.error["code"] in ("backend_died", "worker_gone")
    wait_for(lambda: not processes.alive(engine), "the engine died with its worker")
    server.wait_loaded(LOOP)
