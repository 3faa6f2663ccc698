"""SIGSTOP of a busy engine: it is reported, killed and replaced after the silence limit, or at once if no client needs it. An engine that makes progress is never killed."""

from __future__ import annotations

import os
import signal

import pytest

from tests.conftest import StartServer
from tests.fake_engines.generation.slow_generation import text_of
from tests.fake_engines.llama_server import program_by_model
from tests.faults.conftest import CALM, ENDLESS, LOOP
from tests.support import processes
from tests.support.models.tiny_models import prompt_of
from tests.support.server import LemonbusServer
from tests.support.waiting import DEADLINE, stays, wait_for

SLOW, CHAT = "extra.tiny-slow", "extra.tiny-chat"
SILENCE_S = 0.75
"""Longer than an engine waits for a processor on a busy machine."""


@pytest.fixture(scope="module")
def short_silence_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """Real engines for tiny-loop and tiny-slow; the engine of calm sends a word every tenth of a second, and that of tiny-chat hangs after two words."""
    engine = program_by_model(tmp_path_factory.mktemp("engine"), {"tiny-chat": "hangs_mid_stream"}, "slow_generation")
    server = start_module_server(
        *("tiny-loop", "tiny-slow", "tiny-chat"),
        silence=SILENCE_S,
        ctx_size=65_536,
        load=[LOOP, SLOW],
        gateway_workers=1,
        llama_server=engine,
    )
    (server.models / "calm.gguf").symlink_to(server.models / "tiny-loop.gguf")
    return server


def load(server: LemonbusServer, model: str = LOOP) -> None:
    """Load a model, whatever another test has done with it."""
    assert server.client.post("/v1/load", {"model_name": model}).status == 200


def load_stand_in(server: LemonbusServer, model: str) -> None:
    assert server.client.post("/v1/load", {"model_name": model, "llamacpp_backend": "system"}).status == 200


def test_a_stopped_engine_is_replaced(short_silence_server: LemonbusServer) -> None:
    server = short_silence_server
    load(server)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS)
    stream.until(lambda it: len(it.events) > 2)
    engine = server.engine_pid(LOOP)
    processes.stop(engine)
    stream.finish()
    assert not stream.done
    assert stream.error["code"] == "backend_hung"
    assert stream.error["tokens_sent"] > 0
    wait_for(lambda: (found := server.engine_now(LOOP)) and found.pid != engine, "another engine")
    server.wait_loaded(LOOP)


def test_an_idle_engine_may_be_silent(short_silence_server: LemonbusServer) -> None:
    server = short_silence_server
    load(server)
    engine = server.engine_pid(LOOP)
    stays(lambda: processes.alive(engine), "an idle engine is left alone", 2 * SILENCE_S)


def test_a_long_prefill_is_never_touched(short_silence_server: LemonbusServer) -> None:
    server = short_silence_server
    load(server, SLOW)
    engine = server.engine_pid(SLOW)
    body = {"model": SLOW, "prompt": prompt_of(3000), "max_tokens": 3, "temperature": 0}
    answer = server.client.post("/v1/completions", body)
    assert answer.status == 200, answer
    assert server.engine_pid(SLOW) == engine


def test_a_pause_of_worker_and_engine_does_not_count_as_a_hang(short_silence_server: LemonbusServer) -> None:
    """In a paused container, a frozen virtual machine or a suspended laptop, both stop for longer than the limit."""
    server = short_silence_server
    load_stand_in(server, CALM)
    stream = server.client.start_chat(CALM, stream=True, max_tokens=10)
    stream.until(lambda it: len(it.events) > 2)
    engine, worker = server.engine_pid(CALM), server.worker_pid(CALM)
    for pid in (worker, engine):
        processes.stop(pid)
    stays(lambda: processes.alive(engine), "both are stopped", 1.5 * SILENCE_S)
    for pid in (engine, worker):
        os.kill(pid, signal.SIGCONT)
    stream.finish()
    assert stream.done
    assert server.engine_pid(CALM) == engine


def test_a_slow_generation_is_never_touched(short_silence_server: LemonbusServer) -> None:
    load_stand_in(short_silence_server, CALM)
    stream = short_silence_server.client.start_chat(CALM, stream=True, max_tokens=15).finish()
    assert stream.done
    assert stream.text == text_of(15)


def test_an_engine_that_hangs_in_mid_stream(short_silence_server: LemonbusServer) -> None:
    load_stand_in(short_silence_server, CHAT)
    stream = short_silence_server.client.start_chat(CHAT, stream=True).finish()
    assert stream.text == " one two"
    assert stream.error["code"] == "backend_hung"
    assert stream.error["tokens_sent"] == 2
    assert not stream.done


def abandoned(server: LemonbusServer, stream: bool, others: int = 0) -> None:
    """Stop the engine while it works on a request, and hang up. ``others``: how many requests it works on besides."""
    request = server.client.start_chat(LOOP, stream=stream, max_tokens=ENDLESS)
    wait_for(lambda: server.busy_slots(LOOP) == others + 1, "it is in the engine")
    processes.stop(server.engine_pid(LOOP))
    request.hang_up()


def lost(server: LemonbusServer, model: str, since: int) -> list[str]:
    """The events about the loss of a model's engine that the server has logged after its first ``since`` lines."""
    events_text = [line["event"] for line in server.lines[since:] if line.get("model") == model]
    return [event for event in events_text if event.startswith("engine lost")]


@pytest.mark.parametrize("stream", [True, False])
def test_an_unload_does_not_wait_for_cancelled_requests(single_model_server: LemonbusServer, stream: bool) -> None:
    server = single_model_server
    load(server)
    since = len(server.lines)
    abandoned(server, stream)
    assert server.client.post("/v1/unload", {"model_name": LOOP}, DEADLINE).status == 200
    assert server.engine_now(LOOP) is None
    assert lost(server, LOOP, since) == [], "nothing died: it was ended"


def test_an_eviction_does_not_wait_for_cancelled_requests(single_model_server: LemonbusServer) -> None:
    server = single_model_server
    load(server)
    abandoned(server, stream=True)
    assert server.client.chat(CHAT, DEADLINE, max_tokens=2).status == 200


def test_an_unload_waits_for_requests_with_a_client(short_silence_server: LemonbusServer) -> None:
    server = short_silence_server
    load(server)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS)
    stream.until(lambda it: it.events)
    abandoned(server, stream=True, others=1)
    assert server.client.post("/v1/unload", {"model_name": LOOP}).status == 200
    stream.finish()
    assert stream.error["code"] == "backend_hung", "the engine was ended after its silence"


def test_no_restart_is_announced_for_an_engine_that_dies_before_its_unload(
    single_model_server: LemonbusServer,
) -> None:
    server = single_model_server
    load(server)
    since = len(server.lines)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS)
    stream.until(lambda it: it.events)
    unload = server.client.start("POST", "/v1/unload", {"model_name": LOOP})
    wait_for(lambda: server.model_state(LOOP) == "draining", "the stream may end")
    os.kill(server.engine_pid(LOOP), signal.SIGKILL)
    assert unload.finish().status == 200
    assert stream.finish().error["code"] == "backend_died"
    wait_for(lambda: lost(server, LOOP, since), "the log tells of it")
    assert lost(server, LOOP, since) == ["engine lost, its model was leaving"]
    assert server.model_state(LOOP) == ""
