"""Our server for ONNX Runtime GenAI as a process: requests and their answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.http_client import RawHttpClient, run_concurrently
from tests.support.models.genai_models import GENAI_TEXT, write_genai_model
from tests.workers.engine_servers.oga_server.oga_process import KEY, complete, oga_server

PIECES = GENAI_TEXT.split()
HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
UNKNOWN_TYPE = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
TOO_COMPLEX = {"type": "object", "properties": {f"property_{number}": {"type": "string"} for number in range(600)}}
DIGIT = {
    "type": "object",
    "properties": {"digit": {"$ref": "#/$defs/digit"}},
    "required": ["digit"],
    "additionalProperties": False,
    "$defs": {"digit": {"type": "integer", "minimum": 2, "maximum": 4}},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawHttpClient]:
    folder = write_genai_model(tmp_path_factory.mktemp("oga"), "tiny-oga")
    with oga_server(folder, "-a", "public/name", "--ctx-size", "2048") as (client, _):
        yield client


def test_props_and_version(engine: RawHttpClient) -> None:
    props = engine.get("/props").json()
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (1, 2048)
    assert [each["id"] for each in engine.get("/v1/models").json()["data"]] == ["public/name"]
    assert engine.get("/slots").json()[0]["is_processing"] is False


def test_requests_without_the_key_are_refused(engine: RawHttpClient) -> None:
    for headers in ({}, {"Authorization": f"Bearer {KEY}n"}):
        stranger = RawHttpClient(engine.port, headers)
        answer = stranger.post("/v1/completions", {"prompt": "x"})
        assert (answer.status, answer.error["type"]) == (401, "authentication_error")
        assert stranger.get("/health").status == 200


def test_whole_and_streamed_say_the_same(engine: RawHttpClient) -> None:
    whole = complete(engine)
    assert (whole.text, whole.json()["choices"][0]["finish_reason"]) == (GENAI_TEXT, "stop")
    stream = complete(engine, stream=True, stream_options={"include_usage": True})
    assert (stream.text, stream.done, stream.complete) == (GENAI_TEXT, True, True)
    assert stream.chunks[-1]["usage"] == whole.json()["usage"]
    assert whole.json()["timings"]["predicted_n"] == len(PIECES) + 1
    assert {answer["model"] for answer in (whole.json(), *stream.chunks)} == {"public/name"}


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"max_tokens": 2}, " One folder", "length"),
        ({"max_completion_tokens": 1, "max_tokens": 5}, " One", "length"),
        ({"max_tokens": 0}, "", "length"),
        ({"max_tokens": -1}, GENAI_TEXT, "stop"),
        ({"stop": " full"}, " One folder", "stop"),
        ({"stop": ["an absent phrase", "ull of num"]}, " One folder f", "stop"),
        ({"stop": ["full of no", ""]}, GENAI_TEXT, "stop"),
        ({"temperature": 2, "top_k": 1}, GENAI_TEXT, "stop"),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 10**9, "seed": 2**40}, GENAI_TEXT, "stop"),
        ({"do_sample": False, "temperature": 2}, GENAI_TEXT, "stop"),
        ({"prompt": ["x"]}, GENAI_TEXT, "stop"),
        ({"prompt": [5, 6]}, GENAI_TEXT, "stop"),
        ({"prompt": ""}, GENAI_TEXT, "stop"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_valid_requests(engine: RawHttpClient, fields: dict[str, Any], text: str, reason: str, stream: bool) -> None:
    answer = complete(engine, **fields, stream=stream)
    choices = answer.chunks[-1]["choices"] if stream else answer.json()["choices"]
    assert (answer.text, choices[0]["finish_reason"]) == (text, reason)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(engine: RawHttpClient, stream: bool) -> None:
    answer = complete(engine, logprobs=3, stop=[" some"], stream=stream)
    parts = [chunk["choices"][0] for chunk in answer.chunks] if stream else answer.json()["choices"]
    reported = [token for part in parts if part["logprobs"] for token in part["logprobs"]["content"]]
    assert "".join(token["token"] for token in reported) == answer.text == " One folder full of numbers knows"
    assert {len(token["top_logprobs"]) for token in reported} == {3}
    assert all(token["logprob"] <= 0 and bytes(token["bytes"]).decode() == token["token"] for token in reported)
    quiet = complete(engine, logprobs=False, stream=stream)
    assert '"logprobs":{' not in quiet.body.decode()


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_of_several_prompts(engine: RawHttpClient, stream: bool) -> None:
    asked = {"prompt": ["one", [5, 6, 7, 8, 9]], "n": 2, "max_tokens": 2, "logprobs": 1}
    answer = complete(engine, **asked, stream=stream, stream_options={"include_usage": True})
    parts = [choice for chunk in answer.chunks for choice in chunk["choices"]] if stream else answer.json()["choices"]
    assert list(dict.fromkeys(part["index"] for part in parts)) == [0, 1, 2, 3]
    for index in range(4):
        mine = [part for part in parts if part["index"] == index]
        assert "".join(part["text"] for part in mine) == " One folder"
        assert mine[-1]["finish_reason"] == "length"
        assert sum(len(part["logprobs"]["content"]) for part in mine if part["logprobs"]) == 2
    usages = [chunk["usage"] for chunk in answer.chunks if "usage" in chunk] if stream else [answer.json()["usage"]]
    assert sum(usage["completion_tokens"] for usage in usages) == 8
    # In a stream, each choice counts its whole prompt, as in llama-server.
    assert sum(usage["prompt_tokens"] for usage in usages) == (16 if stream else 8)
    assert {usage["prompt_tokens_details"]["cached_tokens"] for usage in usages} == {0}


def test_choices_of_one_request_have_seeds_of_their_own(engine: RawHttpClient) -> None:
    hot = {"temperature": 400.0, "top_p": 1, "top_k": 0, "max_tokens": 12, "seed": 7, "logprobs": True}

    def drawn(**fields: Any) -> list[list[int]]:
        choices = complete(engine, **hot, **fields).json()["choices"]
        return [[token["id"] for token in choice["logprobs"]["content"]] for choice in choices]

    first, second = drawn(n=2)
    assert first != second
    assert drawn(n=2) == [first, second]
    assert drawn() == [first]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": DIGIT}}},
        {"response_format": {"type": "json_object", "schema": DIGIT}},
        {"json_schema": DIGIT},
        {"json_schema": DIGIT, "min_length": 60},
        {"json_schema": DIGIT, "presence_penalty": 50, "repeat_penalty": 3, "top_k": 2, "top_p": 0.1},
    ],
)
def test_an_answer_of_a_given_form(engine: RawHttpClient, fields: dict[str, Any], stream: bool) -> None:
    answer = engine.post("/v1/chat/completions", {"messages": HI, "temperature": 3, **fields, "stream": stream})
    assert answer.status == 200, answer
    assert json.loads(answer.text)["digit"] in (2, 3, 4)
    assert engine.post("/v1/chat/completions", {"messages": HI, "temperature": 0}).text == GENAI_TEXT


def test_tools_of_a_text_completion_mean_nothing(engine: RawHttpClient) -> None:
    assert complete(engine, tools=TOOLS, tool_choice="required").text == GENAI_TEXT


def test_an_answer_that_is_any_json_object(engine: RawHttpClient) -> None:
    asked = {"messages": HI, "response_format": {"type": "json_object"}, "max_tokens": 9, "temperature": 0}
    assert engine.post("/v1/chat/completions", asked).text.startswith('{" One')


def test_a_seed_makes_chance_repeat_itself(engine: RawHttpClient) -> None:
    def drawn(seed: int) -> str:
        hot = {"temperature": 400.0, "top_p": 1, "top_k": 0, "max_tokens": 12}
        return complete(engine, **hot, seed=seed).body.decode().partition('"index"')[0]

    assert drawn(7) == drawn(7)
    assert len({drawn(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("/v1/completions", {}, 400, "prompt"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, "messages[0].role"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [1]}]}, 400, "content"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image"),
        ("/v1/completions", {"prompt": "x", "temperature": "hot"}, 400, "temperature"),
        ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, "temperature"),
        ("/v1/completions", {"prompt": "x", "top_p": 2}, 400, "top_p"),
        ("/v1/completions", {"prompt": "x", "presence_penalty": 101}, 400, "presence_penalty"),
        ("/v1/completions", {"prompt": "x", "presence_penalty": -101}, 400, "presence_penalty"),
        ("/v1/completions", {"prompt": "x", "presence_penalty": "much"}, 400, "presence_penalty"),
        ("/v1/completions", {"prompt": [10**6]}, 400, "token 1000000"),
        ("/v1/completions", {"prompt": ["a", 5]}, 400, "Field 'prompt'"),
        ("/v1/completions", {"prompt": [[5], [10**6]]}, 400, "token 1000000"),
        ("/v1/completions", {"prompt": "x", "n": 0}, 400, "Field 'n'"),
        ("/v1/completions", {"prompt": ["a", "b"], "n": 65}, 400, "at most 128 completions"),
        ("/v1/chat/completions", {"messages": HI, "response_format": {"type": "xml"}}, 400, "response_format"),
        ("/v1/chat/completions", {"messages": HI, "response_format": UNKNOWN_TYPE}, 400, "Invalid type: nonsense"),
        (
            "/v1/chat/completions",
            {"messages": HI, "json_schema": {"items": {"maxItems": 10**9}}},
            400,
            "`maxItems` of all its lists may",
        ),
        ("/v1/chat/completions", {"messages": HI, "tool_choice": "required"}, 400, "Field 'tool_choice'"),
        ("/v1/chat/completions", {"messages": HI, "tools": [{"type": "function"}]}, 400, "function"),
        ("/v1/chat/completions", {"messages": HI, "tools": TOOLS}, 400, "Field 'tools'"),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"1": 5}}, 501, "biased"),
        ("/v1/completions", {"prompt": "x", "grammar": 'root ::= "a"'}, 501, "grammars"),
        ("/v1/embeddings", {"input": "x"}, 404, "Not Found"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refused_requests(
    engine: RawHttpClient, path: str, body: dict[str, Any], status: int, expected: str, stream: bool
) -> None:
    answer = engine.post(path, {**body, "stream": stream})
    assert (answer.status, answer.error["code"], expected in answer.error["message"]) == (status, status, True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_turns_out_to_be_too_complex(engine: RawHttpClient, stream: bool) -> None:
    """The error may occur when the generator is made or at any token, so in a stream it may come after the first tokens."""
    answer = engine.post("/v1/chat/completions", {"messages": HI, "json_schema": TOO_COMPLEX, "stream": stream})
    assert answer.status in ((200, 400) if stream else (400,))
    assert (answer.error["code"], "Error committing tokens" in answer.error["message"]) == (400, True)
    assert not answer.done
    assert complete(engine, max_tokens=1).status == 200


@pytest.mark.parametrize("depth", range(480, 510, 2))
def test_a_request_that_is_nested_too_deeply(engine: RawHttpClient, depth: int) -> None:
    schema = '{"type":"object","properties":{"a":' * depth + '{"type":"integer"}' + "}}" * depth
    body = f'{{"messages":[{{"role":"user","content":"hi"}}],"json_schema":{schema}}}'
    assert engine.post("/v1/chat/completions", body.encode()).status == 400


def test_a_body_that_is_not_json(engine: RawHttpClient) -> None:
    answer = engine.post("/v1/completions", b"{")
    assert (answer.status, answer.error["code"]) == (400, 400)
    assert b"Traceback" not in answer.body


def test_a_prompt_beyond_the_context(engine: RawHttpClient) -> None:
    answer = complete(engine, prompt="x" * 2048, stream=True)
    assert (answer.status, answer.error["type"]) == (400, "exceed_context_size_error")
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (2048, 2048)
    last = complete(engine, prompt="x" * 2047)
    assert (last.status, last.json()["usage"]["completion_tokens"]) == (200, 1)


def test_one_after_the_other(engine: RawHttpClient) -> None:
    answers = run_concurrently(6, lambda number: complete(engine, max_tokens=10, stream=number % 2 == 0))
    assert {answer.text for answer in answers} == {"".join(f" {word}" for word in PIECES[:10])}


def test_options_that_may_differ_from_request_to_request(engine: RawHttpClient) -> None:
    """They also apply to the second request, although its generator was made for the first."""
    prompt = list(range(5, 30))
    assert complete(engine, prompt=prompt).text == GENAI_TEXT
    longer = complete(engine, prompt=prompt, min_length=40, max_tokens=40).json()
    assert longer["usage"]["completion_tokens"] == 40
    assert longer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_penalties_for_tokens_that_were_used(tmp_path: Path) -> None:
    with oga_server(write_genai_model(tmp_path, "tiny-oga-loop")) as (client, _):
        words = complete(client, max_tokens=40).text.split()
        assert len(set(words)) < len(words)
        for penalty in ("presence_penalty", "frequency_penalty"):
            answer = complete(client, max_tokens=40, logprobs=1, **{penalty: 100}).json()
            tokens = [token["id"] for token in answer["choices"][0]["logprobs"]["content"]]
            assert len(set(tokens)) == len(tokens) >= len(PIECES), "it ends when it has no new word"
            assert complete(client, max_tokens=40, **{penalty: 0}).text.split() == words
