"""Requests to FLM models: answers, failures, hang-ups, and the single NPU that they share."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.flm_on_npu import MODEL, TAG, engine_of, granted, load
from tests.fake_engines import flm
from tests.support.clients.http_client import RawHttpClient, run_concurrently
from tests.support.clients.ndjson import lines
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

SECRET = "a-secret-of-a-prompt"


def test_a_chat_streamed(flm_server: LemonbusServer) -> None:
    chunks = flm_server.client.chat(MODEL, stream=True).chunks
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == " 0 1 2 3 4"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[1]["choices"][0] == {"finish_reason": None, "index": 0, "delta": {"content": " 0"}}
    assert (chunks[-1]["choices"][0]["delta"], chunks[-1]["choices"][0]["finish_reason"]) == ({}, "stop")
    assert chunks[-1]["timings"].items() >= {"prompt_ms": 10.0, "predicted_n": 5}.items()
    assert {chunk["model"] for chunk in chunks} == {MODEL}
    assert not [chunk for chunk in chunks if "usage" in chunk]
    asked = flm_server.client.chat(MODEL, stream=True, stream_options={"include_usage": True}, max_tokens=3)
    assert asked.done
    assert asked.chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert asked.chunks[-1]["choices"] == []
    assert asked.chunks[-1]["usage"]["completion_tokens"] == 3


def test_a_chat_in_ollamas_form(flm_server: LemonbusServer) -> None:
    fields = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "options": {"num_predict": 3}}
    whole = flm_server.client.post("/api/chat", fields).json()
    assert (whole["message"], whole["done_reason"]) == ({"role": "assistant", "content": " 0 1 2"}, "length")
    *pieces, last = lines(flm_server.client.post("/api/chat", {**fields, "stream": True}))
    assert [piece["message"]["content"] for piece in pieces] == [" 0", " 1", " 2"]
    assert (last["done"], last["eval_count"], last["prompt_eval_duration"]) == (True, 3, 10_000_000)


def test_responses(flm_server: LemonbusServer) -> None:
    whole = flm_server.client.post("/v1/responses", {"model": MODEL, "input": "hi"}).json()
    assert (whole["status"], whole["output"][0]["content"][0]["text"]) == ("completed", " 0 1 2 3 4")
    body = {"model": MODEL, "input": "hi", "max_output_tokens": 3, "stream": True}
    stream = flm_server.client.post("/v1/responses", body)
    last = stream.events[-1].json()
    assert last["type"] == "response.incomplete"
    assert last["response"]["output"][0]["content"][0]["text"] == " 0 1 2"
    assert last["response"]["usage"]["output_tokens"] == 3


def test_a_chat_whole_and_its_stats(flm_server: LemonbusServer) -> None:
    answer = flm_server.client.chat(MODEL, max_completion_tokens=4, top_p=None).json()
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": " 0 1 2 3"}
    assert choice["finish_reason"] == "length"
    assert answer["usage"].items() >= {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}.items()

    def is_counted() -> Any:
        stats = flm_server.client.get("/v1/stats").json()
        return (stats["model"], stats["input_tokens"], stats["output_tokens"]) == (MODEL, 1, 4) and stats

    stats = wait_for(is_counted, "the figures are those of this request")
    assert len(stats["decode_token_times"]) == 4
    assert stats["time_to_first_token"] > 0
    assert stats["tokens_per_second"] > 0


def test_text_completions(flm_server: LemonbusServer) -> None:
    streamed = flm_server.client.post("/v1/completions", {"model": MODEL, "prompt": ["a b"], "stream": True})
    assert streamed.text == " 0 1 2 3 4"
    assert streamed.done
    assert [chunk["choices"][0]["finish_reason"] for chunk in streamed.chunks][-2:] == [None, "stop"]
    whole = flm_server.client.post("/v1/completions", {"model": MODEL, "prompt": "a b", "max_tokens": 2}).json()
    assert (whole["object"], whole["model"], whole["text"]) == ("text_completion", MODEL, " 0 1")
    assert (whole["usage"]["prompt_tokens"], whole["choices"][0]["finish_reason"]) == (2, "length")


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "expected"),
    [
        ("chat/completions", {"n": 2}, 400, "invalid_request", "`n`"),
        ("chat/completions", {"messages": [{"role": "user", "content": "w " * 1100}]}, 400, "context_length_exceeded", "longer than the model's context"),
        ("completions", {"prompt": "w " * 1100}, 400, "context_length_exceeded", "longer than the model's context"),
        ("completions", {"prompt": [1, 2]}, 400, "invalid_request", "prompt"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": ["a"]}]}]}, 400, "invalid_request", "must be string"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_flm_with_status_200_is_a_failure(
    flm_server: LemonbusServer, path: str, body: dict[str, Any], status: int, code: str, expected: str, stream: bool
) -> None:
    messages = {"messages": [{"role": "user", "content": "hi"}]} if path == "chat/completions" else {}
    answer = flm_server.client.post(f"/v1/{path}", {"model": MODEL, **messages, **body, "stream": stream})
    assert (answer.status, answer.error["code"]) == (status, code), answer
    assert expected in answer.error["message"]
    assert TAG not in answer.error["message"]


def test_a_generation_that_flm_reports_as_failed(flm_server: LemonbusServer, flm_home: Path) -> None:
    flm.set_behaviour(flm_home, finish="error")
    answer = flm_server.client.chat(MODEL)
    assert (answer.status, answer.error["message"]) == (500, "flm: the generation failed")
    stream = flm_server.client.chat(MODEL, stream=True)
    assert stream.text == " 0 1 2 3 4"
    assert stream.error["code"] == "backend_error"
    assert not stream.done


def test_one_request_at_a_time(flm_server: LemonbusServer, flm_home: Path) -> None:
    flm.set_behaviour(flm_home, token_s=0.01)

    def ask(number: int) -> int:
        if number % 2:
            return flm_server.client.post("/v1/completions", {"model": MODEL, "prompt": "a"}).status
        return flm_server.client.chat(MODEL, stream=bool(number % 4)).status

    assert run_concurrently(6, ask) == [200] * 6


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_on_a_chat_frees_the_npu(flm_server: LemonbusServer, flm_home: Path, stream: bool) -> None:
    flm.set_behaviour(flm_home, words=100_000, token_s=0.01)
    chat = flm_server.client.start_chat(MODEL, stream=stream)
    if stream:
        chat.until(lambda seen: len(seen.events) > 3)
    wait_for(lambda: granted(flm_server) == 1, "it runs")
    chat.hang_up()
    wait_for(lambda: granted(flm_server) == 0, "the NPU is free")
    flm.set_behaviour(flm_home)
    assert flm_server.client.chat(MODEL, max_tokens=1).status == 200


def test_a_text_completion_goes_on_without_its_client_and_keeps_the_npu(
    flm_server: LemonbusServer, flm_home: Path
) -> None:
    flm.set_behaviour(flm_home, words=50, token_s=0.2)
    stream = flm_server.client.start("POST", "/v1/completions", {"model": MODEL, "prompt": "a", "stream": True})
    stream.until(lambda seen: seen.events)
    stream.hang_up()
    assert granted(flm_server) == 1
    flm.set_behaviour(flm_home)
    assert flm_server.client.chat(MODEL).status == 200, "it waited"


def test_many_hang_ups_do_not_use_up_its_connections(flm_server: LemonbusServer, flm_home: Path) -> None:
    flm.set_behaviour(flm_home, words=1000, token_s=0.002)
    for _ in range(12):
        stream = flm_server.client.start_chat(MODEL, stream=True)
        stream.until(lambda seen: seen.events)
        stream.hang_up()
    flm.set_behaviour(flm_home)
    assert flm_server.client.chat(MODEL).status == 200


def test_flm_dies_in_the_middle_of_an_answer(flm_server: LemonbusServer, flm_home: Path) -> None:
    flm.set_behaviour(flm_home, words=100_000, token_s=0.01)
    stream = flm_server.client.start_chat(MODEL, stream=True)
    stream.until(lambda seen: len(seen.events) > 3)
    before = engine_of(flm_server).pid
    os.kill(before, signal.SIGKILL)
    stream.finish()
    assert (stream.error["code"], stream.done) == ("backend_died", False)
    assert "SIGKILL" in stream.error["message"]
    assert stream.error["tokens_sent"] > 0
    flm.set_behaviour(flm_home)
    assert flm_server.client.chat(MODEL).status == 200, "it comes back"
    assert engine_of(flm_server).pid != before


def test_prompts_stay_out_of_the_log(flm_server: LemonbusServer) -> None:
    assert flm_server.client.chat(MODEL, messages=[{"role": "user", "content": SECRET}]).status == 200
    engine = engine_of(flm_server).pid
    os.kill(engine, signal.SIGKILL)
    wait_for(
        lambda: any(line.get("engine_pid") == engine and line["event"] == "engine died" for line in flm_server.lines),
        "its death is in the log",
    )
    assert SECRET not in json.dumps(flm_server.lines)
    assert any("Starting server" in line["event"] for line in flm_server.lines)


def test_an_npu_used_by_another_program_is_waited_for(flm_server: LemonbusServer, flm_home: Path) -> None:
    assert load(flm_server, flm_args="--q-len 0").status == 200
    flm.set_behaviour(flm_home, words=100_000, token_s=0.01)
    behind_our_back = RawHttpClient(int(engine_of(flm_server).option("--port")))
    other = behind_our_back.start_chat(TAG, stream=True)
    other.until(lambda seen: seen.body)
    answer = flm_server.client.chat(MODEL)
    assert (answer.status, answer.error["code"]) == (503, "overloaded")
    assert int(answer.headers["retry-after"]) >= 1
    other.hang_up()
    flm.set_behaviour(flm_home)
    assert flm_server.client.post("/v1/unload", {}).status == 200, "the next test may start"
