"""SIGKILL of the engine in mid-stream: the stream ends with an error, and a new engine starts without a request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.conftest import CALM, ENDLESS, LOOP
from tests.support import processes
from tests.support.clients.anthropic_client import anthropic_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def test_the_client_is_told_and_the_engine_comes_back(loop_server: LemonbusServer) -> None:
    stream = loop_server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS, headers={"X-Request-ID": "told-1"})
    stream.until(lambda it: len(it.events) > 5)
    first = loop_server.engine_pid(LOOP)
    processes.kill(first)
    stream.finish()

    assert not stream.done
    assert stream.error["code"] == "backend_died"
    assert stream.error["model"] == LOOP
    assert stream.error["request_id"] == stream.headers["x-request-id"] == "told-1"
    pieces = [chunk for chunk in stream.chunks if chunk.get("choices") and chunk["choices"][0]["delta"].get("content")]
    assert stream.error["tokens_sent"] == len(pieces) > 0
    assert "error" in stream.events[-1].json(), "nothing comes after the error"

    second = wait_for(lambda: loop_server.engine_now(LOOP), "a new engine").pid
    assert second != first
    loop_server.wait_loaded(LOOP)
    assert loop_server.client.chat(LOOP, max_tokens=3).status == 200


def test_anthropics_package_is_told(calm_server: LemonbusServer) -> None:
    import anthropic  # noqa: PLC0415 - as in anthropic_client

    seen: list[str] = []
    engine = calm_server.engine_pid(CALM)

    def read(client: anthropic.Anthropic) -> None:
        hi: Any = [{"role": "user", "content": "Hi"}]
        for event in client.messages.create(model=CALM, max_tokens=ENDLESS, messages=hi, stream=True):
            seen.append(event.type)
            if len(seen) == 5:
                processes.kill(engine)

    with anthropic_client(calm_server) as client, pytest.raises(anthropic.APIStatusError) as caught:
        read(client)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", "api_error", "backend_died")
    assert body["error"]["model"] == CALM
    assert body["request_id"] == caught.value.request_id
    assert seen[:2] == ["message_start", "content_block_start"]
    assert set(seen[2:]) == {"content_block_delta"}, "nothing says that the message ended"


def test_every_client_of_the_engine_is_told(loop_server: LemonbusServer) -> None:
    streams = [loop_server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS) for _ in range(4)]
    for stream in streams:
        stream.until(lambda it: len(it.events) > 2)
    processes.kill(loop_server.engine_pid(LOOP))
    for stream in streams:
        stream.finish()
        assert stream.error["code"] == "backend_died"
        assert not stream.done


def test_a_stream_ends_with_an_error_when_its_worker_is_killed(loop_server: LemonbusServer) -> None:
    stream = loop_server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS)
    stream.until(lambda it: len(it.events) > 5)
    worker, engine = loop_server.worker_pid(LOOP), loop_server.engine_pid(LOOP)
    processes.kill(worker)
    stream.finish()
    assert not stream.done
    assert stream.error["code"] in ("backend_died", "worker_gone")
    wait_for(lambda: not processes.alive(engine), "the engine died with its worker")
    loop_server.wait_loaded(LOOP)
