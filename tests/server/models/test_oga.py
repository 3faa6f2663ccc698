"""Models of ONNX Runtime GenAI in the whole server: found, loaded, asked, cancelled, killed, refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import processes
from tests.support.clients.ndjson import lines
from tests.support.models.genai_models import CONTEXT, GENAI_TEXT, write_genai_model
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

OGA, LOOP, PLAIN = "extra.tiny-oga", "extra.tiny-oga-loop", "extra.tiny-oga-plain"


@pytest.fixture(scope="module")
def server(shared_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """The shared server, which also has these models while the fixture lasts."""
    folders = [write_genai_model(shared_server.models, name.removeprefix("extra.")) for name in (OGA, LOOP, PLAIN)]
    yield shared_server
    for folder in folders:
        shared_server.client.post("/v1/unload", {"model_name": f"extra.{folder.name}"})
        shutil.rmtree(folder)


def load(server: LemonbusServer, model: str, **options: Any) -> tuple[int, dict[str, Any]]:
    answer = server.client.post("/v1/load", {"model_name": model, **options})
    return answer.status, answer.json()


def test_a_folder_is_a_model_that_is_loaded_asked_and_unloaded(server: LemonbusServer) -> None:
    listed = {each["id"]: each for each in server.client.get("/v1/models").json()["data"]}
    assert (listed[OGA]["recipe"], listed[OGA]["device"]) == ("oga-cpu", "cpu")

    status, body = load(server, OGA)
    assert (status, body["status"], body["message"]) == (200, "success", f"Loaded model: {OGA}")
    (shown,) = [each for each in server.health()["all_models_loaded"] if each["model_name"] == OGA]
    assert (shown["recipe"], shown["device"], shown["type"]) == ("oga-cpu", "cpu", "llm")

    answer = server.client.chat(OGA)
    assert answer.text == GENAI_TEXT
    body = answer.json()
    assert body["model"] == OGA
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    stats = server.client.get("/v1/stats").json()
    assert stats["output_tokens"] == body["usage"]["completion_tokens"] > 0
    assert len(stats["decode_token_times"]) == stats["output_tokens"]
    assert stats["input_tokens"] == body["usage"]["prompt_tokens"]

    engine = server.engine_pid(OGA)
    assert server.client.post("/v1/unload", {"model_name": OGA}).status == 200
    wait_for(lambda: processes.look(engine) is None, "the engine is gone")


def test_ollamas_form(server: LemonbusServer) -> None:
    answer = server.client.post("/api/generate", {"model": OGA, "prompt": "Hello", "raw": True, "think": False})
    assert (answer.status, answer.json()["response"], answer.json()["done_reason"]) == (200, GENAI_TEXT, "stop"), answer
    fields = {"messages": [{"role": "user", "content": "Hello"}], "options": {"num_predict": 3, "seed": 1}}
    *pieces, last = lines(server.client.post("/api/chat", {"model": OGA, "stream": True, "think": True, **fields}))
    assert GENAI_TEXT.startswith("".join(piece["message"]["content"] for piece in pieces))
    assert (last["done_reason"], last["eval_count"]) == ("length", 3)
    assert last["eval_duration"] > 0


def test_streams(server: LemonbusServer) -> None:
    answer = server.client.start_chat(OGA, stream=True, stream_options={"include_usage": True}).finish()
    assert (answer.text, answer.done) == (GENAI_TEXT, True)
    assert {chunk["model"] for chunk in answer.chunks} == {OGA}
    assert answer.chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert answer.chunks[-1]["usage"]["completion_tokens"] > len(GENAI_TEXT.split())
    plain = server.client.start_chat(OGA, stream=True).finish()
    assert plain.text == GENAI_TEXT
    assert not any(chunk.get("usage") for chunk in plain.chunks)


def test_anthropics_messages(server: LemonbusServer) -> None:
    """Our engine reports the stop sequence and the number of tokens."""
    asked: dict[str, Any] = {"model": OGA, "messages": [{"role": "user", "content": "hi"}]}
    words = GENAI_TEXT.split()
    for stop, reason, sequence in ([words[2]], "stop_sequence", words[2]), (["never"], "end_turn", None):
        request = {**asked, "max_tokens": 200, "stop_sequences": stop}
        message = server.client.post("/v1/messages", request).json()
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)
        stream = server.client.post("/v1/messages", {**request, "stream": True}).body.decode()
        assert f'"stop_reason":"{reason}"' in stream
        assert stream.endswith('data: {"type":"message_stop"}\n\n')
        usage = message["usage"]
    counted = server.client.post("/v1/messages/count_tokens", asked).json()
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_responses(server: LemonbusServer) -> None:
    body: dict[str, Any] = {"model": OGA, "input": "hi", "instructions": "Be short."}
    whole = server.client.post("/v1/responses", body).json()
    assert (whole["status"], whole["output"][0]["content"][0]["text"]) == ("completed", GENAI_TEXT)
    stream = server.client.post("/v1/responses", {**body, "stream": True, "previous_response_id": whole["id"]})
    assert [event.json()["sequence_number"] for event in stream.messages] == list(range(len(stream.messages)))
    last = stream.events[-1].json()
    assert (last["type"], last["response"]["output"][0]["content"][0]["text"]) == ("response.completed", GENAI_TEXT)
    assert last["response"]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert last["response"]["usage"]["input_tokens"] > whole["usage"]["input_tokens"]
    cut = server.client.post("/v1/responses", {**body, "max_output_tokens": 2}).json()
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_long_prompt_is_read_in_pieces_and_counted(server: LemonbusServer) -> None:
    body = {"model": OGA, "prompt": "y" * 900, "temperature": 0, "stream": True, "return_progress": True}
    answer = server.client.start("POST", "/v1/completions", body).finish()
    assert answer.text == GENAI_TEXT
    seen = [chunk["prompt_progress"]["processed"] for chunk in answer.chunks if "prompt_progress" in chunk]
    assert seen == sorted(seen)
    assert (seen[-1], len(seen) > 10) == (900, True)


def test_sampling_defaults_hold_where_a_request_says_nothing(server: LemonbusServer) -> None:
    try:
        assert server.client.post("/v1/params", {"max_length": 3, "do_sample": False}).status == 200
        assert server.client.post("/v1/completions", {"model": OGA, "prompt": "x"}).json()["text"] == " One folder full"
        expected = {"model": OGA, "prompt": "x", "max_tokens": 2, "temperature": 0}
        assert server.client.post("/v1/completions", expected).json()["text"] == " One folder"
    finally:
        assert server.client.post("/v1/params", {"max_length": None, "do_sample": None}).status == 200
    longer = {"model": OGA, "prompt": "x", "min_length": 30, "do_sample": False}
    assert server.client.post("/v1/completions", longer).json()["usage"]["completion_tokens"] >= 30


def test_log_probabilities_and_echo_as_the_documents_have_them(server: LemonbusServer) -> None:
    body = {"model": OGA, "prompt": "What?", "echo": True, "logprobs": True, "max_tokens": 3, "do_sample": False}
    (choice,) = server.client.post("/api/v1/completions", body).json()["choices"]
    assert choice["text"] == "What? One folder full"
    assert choice["logprobs"]["tokens"] == [*"What?", " One", " folder", " full"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4, 5, 9, 16]
    assert choice["logprobs"]["token_logprobs"][0] is None
    (choice,) = server.client.chat(OGA, logprobs=True, top_logprobs=2, max_tokens=30).json()["choices"]
    assert "".join(token["token"] for token in choice["logprobs"]["content"]) == GENAI_TEXT
    for token in choice["logprobs"]["content"]:
        first, second = token["top_logprobs"]
        assert first["token"] == token["token"]
        assert 0 >= first["logprob"] == token["logprob"] > second["logprob"]


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, 400, "takes no tools"),
        ({"grammar": 'root ::= "a"'}, 501, "grammars"),
        ({"top_p": 7}, 400, "top_p"),
        ({"messages": [{"role": "user", "content": "x" * CONTEXT}]}, 400, "context"),
        ({"model": PLAIN}, 400, "chat template"),
    ],
)
def test_unsupported_requests_are_refused_with_a_reason(
    server: LemonbusServer, body: dict[str, Any], status: int, expected: str
) -> None:
    answer = server.client.chat(**{"model": OGA, **body})
    assert (answer.status, expected in answer.error["message"]) == (status, True), answer
    assert server.client.chat(OGA, max_tokens=1).status == 200


def test_a_model_without_a_chat_template_completes(server: LemonbusServer) -> None:
    answer = server.client.post("/v1/completions", {"model": PLAIN, "prompt": "x", "temperature": 0})
    assert answer.json()["text"] == GENAI_TEXT
    assert answer.json()["usage"]["prompt_tokens"] == 2, "a token before the text, as its tokenizer wants it"


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_ends_the_generation(server: LemonbusServer, stream: bool) -> None:
    assert load(server, LOOP)[0] == 200
    talk = server.client.start_chat(LOOP, stream=stream)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it works")
    talk.hang_up()
    wait_for(lambda: server.busy_slots(LOOP) == 0, "it has stopped")
    server.assert_idle()


def test_an_engine_killed_in_mid_answer_is_told_and_replaced(server: LemonbusServer) -> None:
    talk = server.client.start_chat(LOOP, stream=True)
    talk.until(lambda seen: len(seen.events) > 3)
    first = server.engine_pid(LOOP)
    processes.kill(first)
    talk.finish()
    assert (talk.error["code"], talk.done) == ("backend_died", False)
    assert server.client.chat(LOOP, max_tokens=4).status == 200
    assert server.engine_pid(LOOP) != first


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("no config", "is not downloaded"),
        ("no onnx", "model.onnx is missing"),
        ("half an onnx", "model.onnx is truncated"),
        ("another config", "genai_config.json is broken"),
        ("a file elsewhere", "outside of its folder"),
    ],
)
def test_a_broken_folder_is_refused_before_an_engine_starts(server: LemonbusServer, harm: str, expected: str) -> None:
    folder = write_genai_model(server.models, "tiny-oga", "broken")
    try:
        assert server.client.get("/v1/models/extra.broken").status == 200
        config = folder / "genai_config.json"
        if harm == "no config":
            config.unlink()
        elif harm == "no onnx":
            (folder / "model.onnx").unlink()
        elif harm == "half an onnx":
            (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:100_000])
        elif harm == "another config":
            config.write_text("{")
        else:
            config.write_text(json.dumps({"model": {"decoder": {"filename": "../../model.onnx"}}}))
        status, body = load(server, "extra.broken")
        if harm == "no config":
            assert (status, body["error"]["code"]) == (404, "model_not_found")
            return
        assert (status, body["error"]["code"]) == (500, "model_unusable")
        assert expected in body["message"]
        assert str(server.models) not in body["message"]
        assert not any("broken" in line.get("command", "") for line in server.lines)
    finally:
        shutil.rmtree(folder)


def test_prompts_are_scored(server: LemonbusServer) -> None:
    body = {"model": OGA, "prompt": ["One folder full", "x" * 600], "max_tokens": 1, "temperature": 0, "logprobs": 2}
    scored = server.client.post("/v1/completions", {**body, "echo": True}).json()["choices"]
    assert scored[0]["logprobs"]["tokens"][-3:] == [" folder", " full", " of"]
    before = server.client.post("/v1/completions", {**body, "prompt": "One folder"}).json()["choices"][0]["logprobs"]
    assert scored[0]["logprobs"]["top_logprobs"][-2].items() >= before["top_logprobs"][0].items()
    assert [len(values) for values in scored[1]["logprobs"].values()] == [601] * 4
    refused = server.client.post("/v1/completions", {**body, "prompt": [82, 113], "logprobs": None, "echo": True})
    assert (refused.status, refused.error["param"]) == (400, "echo")
