"""SIGSTOP of a busy engine: told, killed, replaced after the silence limit; progress is never touched."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import OpenHouse
from tests.engines.engine import program
from tests.house.models import prompt_of
from tests.house.server import Server
from tests.house.waiting import stays, wait_for

LOOP, SLOW, CHAT = "extra.tiny-loop", "extra.tiny-slow", "extra.tiny-chat"


def test_a_stopped_engine_is_replaced(open_house: OpenHouse) -> None:
    server = open_house("tiny-loop", silence=1, load=[LOOP])
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=8000)
    stream.until(lambda it: len(it.events) > 2)
    engine = server.engine_pid(LOOP)
    os.kill(engine, signal.SIGSTOP)
    stream.finish(8)
    assert not stream.done
    assert stream.error["code"] == "backend_hung"
    assert stream.error["tokens_sent"] > 0
    wait_for(lambda: (found := server.engine_now(LOOP)) and found.pid != engine, "another engine")
    server.wait_loaded(LOOP)


@pytest.fixture(scope="module")
def impatient(open_shared: OpenHouse) -> Server:
    return open_shared("tiny-loop", "tiny-slow", silence=0.4, load=[LOOP, SLOW])


def test_an_idle_engine_may_be_silent(impatient: Server) -> None:
    server = impatient
    server.wait_loaded(LOOP)
    engine = server.engine_pid(LOOP)
    stays(lambda: server.engine_pid(LOOP) == engine, "an idle engine is left alone", 1.5)


def test_a_long_prefill_is_never_touched(impatient: Server) -> None:
    server = impatient
    server.wait_loaded(SLOW)
    engine = server.engine_pid(SLOW)
    body = {"model": SLOW, "prompt": prompt_of(4000), "max_tokens": 3, "temperature": 0}
    answer = server.client.post("/v1/completions", body)
    assert answer.status == 200, answer
    assert server.engine_pid(SLOW) == engine


def test_a_slow_generation_is_never_touched(open_house: OpenHouse, tmp_path: Path) -> None:
    engine = program(tmp_path, "one_by_one")
    server = open_house("tiny-chat", llamacpp_backend="system", llama_server=engine, silence=0.5, load=[CHAT])
    stream = server.client.start_chat(CHAT, stream=True, max_tokens=30).finish()
    assert stream.done
    assert len(stream.text.split()) == 30


def test_an_engine_that_hangs_in_mid_stream(open_house: OpenHouse, tmp_path: Path) -> None:
    engine = program(tmp_path, "hangs")
    server = open_house("tiny-chat", llamacpp_backend="system", llama_server=engine, silence=0.5, load=[CHAT])
    stream = server.client.start_chat(CHAT, stream=True).finish(8)
    assert stream.text == " one two"
    assert stream.error["code"] == "backend_hung"
    assert stream.error["tokens_sent"] == 2
    assert not stream.done
