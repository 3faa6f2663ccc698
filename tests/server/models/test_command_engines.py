"""Models that a program of the operator's own runs (``command`` in a section): each API, each kind, and what a server may do wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.requests.text_limits import BYTES_PER_TOKEN
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.conftest import StartServer
from tests.fake_engines.llama_server import ANSWER, WORDS
from tests.fake_engines.openai_answers import MODEL, SOUND, VECTOR
from tests.fake_engines.openai_server import section
from tests.support import processes
from tests.support.audio import wav
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "requests"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, journal: Path) -> LemonbusServer:
    faults = ("no_usage", "no_done", "line_ends", "no_finish", "cut", "error_in_stream", "strict", "fails", "limits")
    wrong = {name: section("--fault", name, slots=2) for name in faults}
    models = {
        "own": section("--journal", str(journal), aliases=["gpt-4o"], slots=3, capabilities=["tools", "vision"]),
        "vectors": section(type="embedding", served_name=MODEL),
        "ranks": section(type="reranking"),
        "ears": section("--journal", f"{journal}-ears", type="audio"),
        "wordless": section("--fault", "no_words", type="audio"),
        "voice": section(type="tts"),
        "brush": section("--journal", f"{journal}-brush", type="image"),
        "closed": section("--fault", "until_close"),
        "cut_closed": section("--fault", "until_close,cut,no_done"),
        "keyed": section(env={"STAND_IN_KEY": "{key}"}),
        "bare": section("--fault", "no_health,no_models", served_name=MODEL),
        "misnamed": section(served_name="another"),
        **wrong,
    }
    return start_module_server(models=models, gateway_workers=1, max_loaded_models=30)


def chat(server: LemonbusServer, model: str, **more: Any) -> Any:
    return server.client.post("/v1/chat/completions", {"model": model, "messages": HI, **more})


def test_the_model_is_listed_with_what_the_section_says(server: LemonbusServer) -> None:
    listed = {each["id"]: each for each in server.client.get("/v1/models").json()["data"]}
    assert listed["own"]["recipe"] == "command"
    assert {"tools", "vision"} <= set(listed["own"]["labels"])
    assert listed["gpt-4o"]["root"] == "own"
    assert "embeddings" in listed["vectors"]["labels"]
    everything = {each["id"]: each for each in server.client.get("/v1/models?show_all=true").json()["data"]}
    assert (everything["own"]["origin"], everything["own"]["size"]) == ("program", 0)
    assert next(iter(everything.values()))["origin"] == "files"


def test_ollamas_list_gives_it_no_size_and_no_date_of_1970(server: LemonbusServer) -> None:
    tags = {each["name"]: each for each in server.client.get("/api/tags").json()["models"]}
    shown = tags["own:latest"]
    assert (shown["size"], shown["digest"]) == (0, "")
    assert shown["modified_at"] == server.client.get("/v1/models/own").json()["created_at"]
    assert not shown["modified_at"].startswith("1970")


def test_a_whole_answer(server: LemonbusServer, journal: Path) -> None:
    answer = chat(server, "gpt-4o", temperature=0.5, tools=None, logit_bias={"5": 1})
    assert answer.status == 200, answer
    body = answer.json()
    assert body["model"] == "gpt-4o"
    assert body["choices"][0]["message"]["content"] == ANSWER
    assert body["usage"]["completion_tokens"] == 5
    sent = json.loads(json.loads(journal.read_text().splitlines()[-1])["body"])
    assert (sent["model"], sent["temperature"], sent["logit_bias"]) == (MODEL, 0.5, {"5": 1})
    assert "tools" not in sent
    loaded = next(each for each in server.health()["all_models_loaded"] if each["model_name"] == "own")
    assert (loaded["recipe"], loaded["type"]) == ("command", "llm")


@pytest.mark.parametrize("model", ["own", "line_ends", "no_done", "closed", "keyed", "bare"])
def test_a_stream(server: LemonbusServer, model: str) -> None:
    stream = server.client.start_chat(model, stream=True, stream_options={"include_usage": True})
    stream.finish()
    assert stream.done, stream.events
    assert stream.text == ANSWER
    assert stream.chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert {chunk["model"] for chunk in stream.chunks} == {model}
    assert stream.chunks[-1]["usage"]["completion_tokens"] == 5


def test_a_server_that_counts_no_tokens_is_not_credited_with_counts(server: LemonbusServer) -> None:
    assert "usage" not in chat(server, "no_usage").json()
    stream = server.client.start_chat("no_usage", stream=True, stream_options={"include_usage": True})
    stream.finish()
    assert stream.done
    assert not any(chunk.get("usage") for chunk in stream.chunks)
    ollama = server.client.post("/api/chat", {"model": "no_usage", "stream": False, "messages": HI})
    assert (ollama.json()["prompt_eval_count"], ollama.json()["eval_count"]) == (0, 0)


def answered(server: LemonbusServer, request: str) -> dict[str, Any]:
    """The worker's line about a request that has been answered."""
    found = wait_for(
        lambda: [line for line in server.lines if line["event"] == "answered" and line["request_id"] == request],
        "the worker says what the request has cost",
    )
    return found[0]


def test_limits_and_statistics_estimate_what_a_server_does_not_count(server: LemonbusServer) -> None:
    prompt = -(-len(json.dumps(HI)) // BYTES_PER_TOKEN)
    text = -(-len(json.dumps(ANSWER)) // BYTES_PER_TOKEN)
    for stream, output in ((False, text), (True, len(WORDS))):
        answer = chat(server, "no_usage", stream=stream)
        assert answer.status == 200
        line = answered(server, answer.headers["x-request-id"])
        assert (line["prompt_tokens"], line["output_tokens"], line["estimated"]) == (prompt, output, True)
    counted = chat(server, "own")
    line = answered(server, counted.headers["x-request-id"])
    assert (line["prompt_tokens"], line["output_tokens"]) == (5, 5)
    assert "estimated" not in line


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("no_finish", "backend_error"),
        ("cut", "backend_connection_lost"),
        ("cut_closed", "backend_error"),
        ("error_in_stream", "backend_error"),
    ],
)
def test_a_stream_that_does_not_truly_end_is_an_error(server: LemonbusServer, model: str, code: str) -> None:
    stream = server.client.start_chat(model, stream=True)
    stream.finish()
    assert not stream.done
    assert stream.error["code"] == code
    assert stream.error["model"] == model


def test_a_servers_own_errors(server: LemonbusServer) -> None:
    refused = server.client.start_chat("strict", stream=True)
    refused.finish()
    assert refused.status == 400
    assert "extra fields not permitted" in json.loads(refused.body)["error"]["message"]
    failed = chat(server, "fails")
    assert (failed.status, failed.error["code"]) == (500, "backend_error")
    assert "Internal fault" in failed.error["message"]
    limited = chat(server, "limits")
    assert (limited.status, limited.error["code"]) == (429, "rate_limit_exceeded")
    assert limited.headers["retry-after"] == "7"
    unknown = chat(server, "misnamed")
    assert (unknown.status, unknown.error["code"]) == (502, "backend_error")
    assert "served_name" in unknown.error["message"]


def test_other_apis(server: LemonbusServer) -> None:
    anthropic = server.client.post("/v1/messages", {"model": "own", "max_tokens": 50, "messages": HI})
    assert anthropic.json()["content"][0]["text"] == ANSWER
    ollama = server.client.post("/api/chat", {"model": "own", "stream": False, "messages": HI})
    assert ollama.json()["message"]["content"] == ANSWER
    assert ollama.json()["eval_count"] == 5
    completed = server.client.post("/v1/completions", {"model": "own", "prompt": "Hi"})
    assert completed.json()["choices"][0]["text"] == ANSWER
    responses = server.client.post("/v1/responses", {"model": "own", "input": "Hi"})
    assert responses.json()["output"][-1]["content"][0]["text"] == ANSWER


def transcribe(server: LemonbusServer, model: str, *granularities: str) -> Any:
    fields = {"model": model, "response_format": "verbose_json"}
    parts = [FormPart(name, value.encode()) for name, value in fields.items()]
    parts += [FormPart("timestamp_granularities[]", each.encode()) for each in granularities]
    form = form_data.encode([*parts, FormPart("file", wav(1.2), "a.wav")])
    kind = f"multipart/form-data; boundary={form_data.boundary_from_body(form)}"
    return server.client.post("/v1/audio/transcriptions", form, Content_Type=kind)


def test_times_of_words_that_a_server_does_not_give_are_refused(server: LemonbusServer) -> None:
    assert [each["word"] for each in transcribe(server, "ears", "word").json()["words"]] == ["Hello", "world"]
    refused = transcribe(server, "wordless", "word", "segment")
    assert (refused.status, refused.error["code"]) == (501, "unsupported_operation")
    assert "wordless gives no times of words" in refused.error["message"]
    assert transcribe(server, "wordless", "segment").json()["text"] == "Hello world."


def test_vectors_ranks_speech_and_pictures(server: LemonbusServer, journal: Path) -> None:
    vectors = server.client.post("/v1/embeddings", {"model": "vectors", "input": "Hi"})
    assert vectors.json()["data"][0]["embedding"] == VECTOR
    ranked = server.client.post("/v1/rerank", {"model": "ranks", "query": "Hi", "documents": ["a", "b"]})
    assert [each["index"] for each in ranked.json()["results"]] == [0, 1]
    transcript = transcribe(server, "ears")
    assert transcript.json()["text"] == "Hello world."
    assert [each["text"] for each in transcript.json()["segments"]] == [" Hello", " world."]
    spoken = server.client.post("/v1/audio/speech", {"model": "voice", "input": "Hi", "voice": "alloy"})
    assert (spoken.status, spoken.body) == (200, SOUND)
    drawn = server.client.post("/v1/images/generations", {"model": "brush", "prompt": "a cat", "size": "256x256"})
    assert drawn.json()["data"][0]["b64_json"]


@pytest.mark.parametrize("path", ["/completion", "/infill", "/tokenize", "/slots"])
def test_what_only_llama_server_has_is_refused_clearly(server: LemonbusServer, path: str) -> None:
    asked = {"model": "own", "prompt": "Hi", "content": "Hi", "input_prefix": "a", "input_suffix": "b"}
    answer = server.client.get(f"{path}?model=own") if path == "/slots" else server.client.post(path, asked)
    assert answer.status in (400, 501)
    assert "own" in answer.error["message"]


def test_clients_cannot_name_a_program(server: LemonbusServer) -> None:
    load = {"model_name": "owner/new", "recipe": "command", "command": ["/bin/sh"]}
    answers = [
        server.client.post("/v1/load", load),
        server.client.post("/v1/pull", {"model_name": "user.x", "checkpoint": "a/b", "recipe": "command"}),
        server.client.post("/v1/load", {"model_name": "own", "command": ["/bin/sh"]}),
        server.client.post("/v1/load", {"model_name": "own", "url": "http://127.0.0.1:1/v1"}),
        server.client.post("/v1/delete", {"model_name": "own"}),
    ]
    assert [answer.status for answer in answers] == [400, 400, 400, 400, 409]


def test_its_process_group_ends_with_it(start_server: StartServer, tmp_path: Path) -> None:
    journal = tmp_path / "requests"
    models = {"own": section("--journal", str(journal), "--fault", "leaves_child")}
    server = start_server(models=models)
    assert chat(server, "own").status == 200
    child = int(Path(f"{journal}.child").read_text())
    processes.kill(server.engine_pid("own"))
    wait_for(lambda: not processes.alive(child), "what it had started has ended with it")
    wait_for(lambda: chat(server, "own").status == 200, "another one serves")
    child = int(Path(f"{journal}.child").read_text())
    assert server.client.post("/v1/unload", {"model_name": "own"}).status == 200
    wait_for(lambda: not processes.alive(child), "the second child has ended")
