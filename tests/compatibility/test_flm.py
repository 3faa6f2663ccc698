"""FLM models, as the specification has them (pull, load, chat) and as a fake ``flm serve`` behaves."""

from __future__ import annotations

import base64
import json
import os
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.flm_on_npu import EMBED, MODEL, SPEECH, TAG, engine_of, granted, load, transcribe
from tests.compatibility.hub_server import ids, pull
from tests.fake_engines import flm
from tests.support import processes
from tests.support.http_client import RawHttpClient, run_concurrently
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

SECRET = "a-secret-of-a-prompt"


@pytest.fixture
def home(module_npu_server: tuple[LemonbusServer, Path]) -> Path:
    flm.set_behaviour(module_npu_server[1])
    return module_npu_server[1]


@pytest.fixture
def server(module_npu_server: tuple[LemonbusServer, Path], home: Path) -> LemonbusServer:
    assert home
    if MODEL not in ids(module_npu_server[0]):
        assert pull(module_npu_server[0], model_name=MODEL)[0] == 200
    return module_npu_server[0]


def test_pull_tells_flms_own_progress(module_npu_server: tuple[LemonbusServer, Path], home: Path) -> None:
    server = module_npu_server[0]
    if MODEL in ids(server):
        assert server.client.post("/v1/delete", {"model_name": MODEL}).status == 200
    assert MODEL not in ids(server)
    flm.set_behaviour(home, pull_fails=True)
    status, body = pull(server, model_name=MODEL)
    assert (status, body["status"]) == (502, "error")
    assert "Couldn't resolve host name; [ERROR]  Failed to pull model" in body["message"]
    assert MODEL not in ids(server)
    flm.set_behaviour(home)
    stream = server.client.post("/v1/pull", {"model_name": MODEL, "stream": True})
    events = [(event.name, event.json()) for event in stream.events]
    assert events[-1][0] == "complete"
    last = [data for name, data in events if name == "progress"][-1]
    assert (last["file"], last["file_index"], last["total_files"]) == ("model.q4nx", 3, 3)
    assert last["bytes_total"] == 1100 * flm.MIB
    assert MODEL in ids(server)
    entries = server.client.get("/v1/models?show_all=true").json()["data"]
    size = next(entry["size"] for entry in entries if entry["id"] == MODEL)
    assert size == pytest.approx(1.2358, abs=0.001), "the size in flm's list"


def test_system_info_has_what_flm_finds_wrong(server: LemonbusServer, home: Path) -> None:
    flm.set_behaviour(home, ready=False)
    body = server.client.get("/v1/system-info").json()
    for name in ("npu", "default"):
        shown = body["recipes"]["flm"]["backends"][name]
        assert (shown["state"], shown["devices"]) == ("update_required", ["amd_npu"])
        assert shown["message"] == "flm cannot use the NPU: the NPU's firmware is too old."
        assert (shown["action"], shown["version"]) == ("flm validate", flm.VERSION)
    flm.set_behaviour(home, ready=True)

    def state() -> str:
        report = server.client.get("/v1/system-info").json()
        return str(report["recipes"]["flm"]["backends"]["npu"]["state"])

    wait_for(lambda: state() == "installed", "the state follows the update of the firmware", 20)


def test_a_model_is_loaded_and_health_has_it(server: LemonbusServer) -> None:
    server.client.post("/v1/unload", {})
    body = load(server, ctx_size=700).json()
    assert (body["status"], body["message"]) == ("success", f"Loaded model: {MODEL}")
    (shown,) = server.health()["all_models_loaded"]
    assert shown.items() >= {
        "model_name": MODEL,
        "checkpoint": TAG,
        "recipe": "flm",
        "type": "llm",
        "device": "npu",
        "recipe_options": {"ctx_size": 700},
    }.items()  # fmt: skip
    engine = engine_of(server)
    options = {flag: engine.option(flag) for flag in ("serve", "--ctx-len", "--host", "--cors")}
    assert options == {"serve": TAG, "--ctx-len": "700", "--host": "127.0.0.1", "--cors": "0"}
    assert shown["backend_url"] == f"http://127.0.0.1:{engine.option('--port')}/v1"
    state = server.state()["models"][0]
    assert (state["slots"], state["context"]) == (1, 700)
    assert server.client.post("/v1/unload", {"model_name": MODEL}).status == 200
    assert processes.look(engine.pid) is None
    assert server.health()["all_models_loaded"] == []


def test_a_chat_streamed(server: LemonbusServer) -> None:
    chunks = server.client.chat(MODEL, stream=True).chunks
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == " 0 1 2 3 4"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert chunks[1]["choices"][0] == {"finish_reason": None, "index": 0, "delta": {"content": " 0"}}
    assert (chunks[-1]["choices"][0]["delta"], chunks[-1]["choices"][0]["finish_reason"]) == ({}, "stop")
    assert chunks[-1]["timings"].items() >= {"prompt_ms": 10.0, "predicted_n": 5}.items()
    assert {chunk["model"] for chunk in chunks} == {MODEL}
    assert not [chunk for chunk in chunks if "usage" in chunk]
    asked = server.client.chat(MODEL, stream=True, stream_options={"include_usage": True}, max_tokens=3)
    assert asked.done
    assert asked.chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert asked.chunks[-1]["choices"] == []
    assert asked.chunks[-1]["usage"]["completion_tokens"] == 3


def test_a_chat_whole_and_its_stats(server: LemonbusServer) -> None:
    answer = server.client.chat(MODEL, max_completion_tokens=4, top_p=None).json()
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": " 0 1 2 3"}
    assert choice["finish_reason"] == "length"
    assert answer["usage"].items() >= {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}.items()
    stats = server.client.get("/v1/stats").json()
    assert (stats["model"], stats["input_tokens"], stats["output_tokens"]) == (MODEL, 1, 4)
    assert len(stats["decode_token_times"]) == 4
    assert stats["time_to_first_token"] > 0
    assert stats["tokens_per_second"] > 0


def test_text_completions(server: LemonbusServer) -> None:
    streamed = server.client.post("/v1/completions", {"model": MODEL, "prompt": ["a b"], "stream": True})
    assert streamed.text == " 0 1 2 3 4"
    assert streamed.done
    assert [chunk["choices"][0]["finish_reason"] for chunk in streamed.chunks][-2:] == [None, "stop"]
    whole = server.client.post("/v1/completions", {"model": MODEL, "prompt": "a b", "max_tokens": 2}).json()
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
def test_what_flm_says_with_200_is_a_failure(
    server: LemonbusServer, path: str, body: dict[str, Any], status: int, code: str, expected: str, stream: bool
) -> None:
    messages = {"messages": [{"role": "user", "content": "hi"}]} if path == "chat/completions" else {}
    answer = server.client.post(f"/v1/{path}", {"model": MODEL, **messages, **body, "stream": stream})
    assert (answer.status, answer.error["code"]) == (status, code), answer
    assert expected in answer.error["message"]
    assert TAG not in answer.error["message"]


def test_an_end_that_is_none(server: LemonbusServer, home: Path) -> None:
    flm.set_behaviour(home, finish="error")
    answer = server.client.chat(MODEL)
    assert (answer.status, answer.error["message"]) == (500, "flm: the generation failed")
    stream = server.client.chat(MODEL, stream=True)
    assert stream.text == " 0 1 2 3 4"
    assert stream.error["code"] == "backend_error"
    assert not stream.done


def test_one_request_at_a_time(server: LemonbusServer, home: Path) -> None:
    flm.set_behaviour(home, token_s=0.01)

    def ask(number: int) -> int:
        if number % 2:
            return server.client.post("/v1/completions", {"model": MODEL, "prompt": "a"}).status
        return server.client.chat(MODEL, stream=bool(number % 4)).status

    assert run_concurrently(6, ask) == [200] * 6


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_on_a_chat_frees_the_npu(server: LemonbusServer, home: Path, stream: bool) -> None:
    flm.set_behaviour(home, words=100_000, token_s=0.01)
    chat = server.client.start_chat(MODEL, stream=stream)
    if stream:
        chat.until(lambda seen: len(seen.events) > 3)
    wait_for(lambda: granted(server) == 1, "it runs")
    chat.hang_up()
    wait_for(lambda: granted(server) == 0, "the NPU is free", 3.0)
    flm.set_behaviour(home)
    assert server.client.chat(MODEL, max_tokens=1).status == 200


def test_a_text_completion_goes_on_without_its_client_and_keeps_the_npu(server: LemonbusServer, home: Path) -> None:
    flm.set_behaviour(home, words=50, token_s=0.01)
    stream = server.client.start("POST", "/v1/completions", {"model": MODEL, "prompt": "a", "stream": True})
    stream.until(lambda seen: seen.events)
    stream.hang_up()
    assert granted(server) == 1
    flm.set_behaviour(home)
    assert server.client.chat(MODEL).status == 200, "it waited"


def test_hanging_up_often_leaves_it_connections(server: LemonbusServer, home: Path) -> None:
    flm.set_behaviour(home, words=1000, token_s=0.002)
    for _ in range(12):
        stream = server.client.start_chat(MODEL, stream=True)
        stream.until(lambda seen: seen.events)
        stream.hang_up()
    flm.set_behaviour(home)
    assert server.client.chat(MODEL).status == 200


def test_its_death_in_mid_answer(server: LemonbusServer, home: Path) -> None:
    flm.set_behaviour(home, words=100_000, token_s=0.01)
    stream = server.client.start_chat(MODEL, stream=True)
    stream.until(lambda seen: len(seen.events) > 3)
    before = engine_of(server).pid
    os.kill(before, signal.SIGKILL)
    stream.finish()
    assert (stream.error["code"], stream.done) == ("backend_died", False)
    assert "SIGKILL" in stream.error["message"]
    assert stream.error["tokens_sent"] > 0
    flm.set_behaviour(home)
    assert server.client.chat(MODEL).status == 200, "it comes back"
    assert engine_of(server).pid != before


def test_a_model_that_it_cannot_load(server: LemonbusServer, home: Path) -> None:
    assert server.client.post("/v1/unload", {}).status == 200
    flm.set_behaviour(home, load_fails=TAG)
    answer = load(server)
    assert (answer.status, answer.error["code"]) == (503, "load_failed")
    (problem,) = server.state()["troubled"]
    assert f"Failed to load {TAG} model!" in problem["detail"]
    flm.set_behaviour(home)
    assert load(server).status == 200


def test_embeddings_are_a_process_of_their_own(server: LemonbusServer) -> None:
    answer = server.client.post("/v1/embeddings", {"model": EMBED, "input": ["abcd", "abcdefgh"]}).json()
    assert [item["embedding"] for item in answer["data"]] == [[0.5, -0.5], [1.0, -0.5]]
    assert (answer["object"], answer["model"]) == ("list", EMBED)
    coded = {"model": EMBED, "input": "abcd", "encoding_format": "base64"}
    (item,) = server.client.post("/v1/embeddings", coded).json()["data"]
    assert struct.unpack("<2f", base64.b64decode(item["embedding"])) == (0.5, -0.5)
    engine = engine_of(server, EMBED)
    assert (engine.option("serve"), engine.option("--embed")) == ("--embed", "1")
    assert server.client.post("/v1/embeddings", {"model": EMBED, "input": [1, 2]}).status == 400


def test_so_are_transcriptions(server: LemonbusServer) -> None:
    assert transcribe(server).json()["text"] == "the words"
    assert transcribe(server, response_format="text").body == b"the words\n"
    timed = transcribe(server, response_format="srt")
    assert (timed.status, timed.error["param"]) == (501, "response_format")
    engine = engine_of(server, SPEECH)
    assert (engine.option("serve"), engine.option("--asr")) == ("--asr", "1")
    shown = next(each for each in server.health()["all_models_loaded"] if each["model_name"] == SPEECH)
    assert (shown["type"], shown["device"]) == ("audio", "npu")


def test_prompts_stay_out_of_the_log(server: LemonbusServer) -> None:
    assert server.client.chat(MODEL, messages=[{"role": "user", "content": SECRET}]).status == 200
    os.kill(engine_of(server).pid, signal.SIGKILL)
    wait_for(lambda: any(line["event"] == "engine died" for line in server.lines), "its death is in the log")
    assert SECRET not in json.dumps(server.lines)
    assert any("Starting server" in line["event"] for line in server.lines)


def test_an_npu_used_by_another_program_is_waited_for(server: LemonbusServer, home: Path) -> None:
    assert load(server, flm_args="--q-len 0").status == 200
    flm.set_behaviour(home, words=100_000, token_s=0.01)
    behind_our_back = RawHttpClient(int(engine_of(server).option("--port")))
    other = behind_our_back.start_chat(TAG, stream=True)
    other.until(lambda seen: seen.body)
    answer = server.client.chat(MODEL)
    assert (answer.status, answer.error["code"]) == (503, "overloaded")
    assert int(answer.headers["retry-after"]) >= 1
    other.hang_up()
    flm.set_behaviour(home)
    assert server.client.post("/v1/unload", {}).status == 200, "the next test may start"


def test_the_flags_that_are_ours(server: LemonbusServer) -> None:
    answer = load(server, flm_args="--pmode turbo --port 1")
    assert (answer.status, answer.error["param"]) == (400, "flm_args")
    assert load(server, flm_args="--pmode turbo --socket 20").status == 200
    assert engine_of(server).words[-4:] == ("--pmode", "turbo", "--socket", "20")


def test_the_npu_has_one_model_of_each_type(server: LemonbusServer) -> None:
    other = "Qwen3-0.6b-FLM"
    assert load(server).status == 200
    assert load(server, EMBED).status == 200
    assert load(server, "extra.tiny-chat").status == 200
    before = {each["model_name"] for each in server.health()["all_models_loaded"]}
    assert before >= {MODEL, EMBED, "extra.tiny-chat"}
    assert load(server, other).status == 200
    loaded = {each["model_name"] for each in server.health()["all_models_loaded"]}
    assert loaded == {*before, other} - {MODEL}, "it was unloaded from the NPU, and no other model was"
    answers = run_concurrently(4, lambda number: server.client.chat((MODEL, other)[number % 2]).status)
    assert answers == [200] * 4
