"""llama.cpp's unprefixed routes: what goes on the bus, the exact bytes that come back, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.llamacpp.completion import CompletionStreamWriter, selected_fields
from gateway.api.llamacpp.props import public_props
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages import work
from tests.gateway.app_client import AppClient, StreamedAnswer

TOKEN: dict[str, Any] = {"index": 0, "content": " Once", "tokens": [262], "stop": False}
LAST: dict[str, Any] = {
    "index": 0,
    "content": "",
    "stop": True,
    "model": "m",
    "generation_settings": {"n_predict": 3, "seed": 1},
}

REQUESTS: list[tuple[str, dict[str, Any], str, int]] = [
    ("completion", {"prompt": "a"}, "completion", 1),
    ("completions", {"prompt": "a", "logit_bias": [[1, False]]}, "completion", 1),
    ("completion", {"prompt": ["a", "b"], "n_cmpl": 2}, "completion", 4),
    ("completion", {"prompt": ["a", [1, 2], {"prompt_string": "c"}]}, "completion", 3),
    ("completion", {"prompt": [1, 2, 3]}, "completion", 1),
    ("completion", {"prompt": ""}, "completion", 1),
    ("completion", {"prompt": [1, ""], "n_cmpl": 2}, "completion", 2),
    ("completion", {"prompt": [1, "a", 3], "n": 3}, "completion", 3),
    ("infill", {"input_prefix": "a", "input_suffix": "b"}, "infill", 1),
    ("infill", {"input_prefix": "a", "input_suffix": "b", "n_cmpl": 2, "prompt": "x"}, "infill", 2),
    ("embedding", {"content": "a"}, "embedding", 1),
    ("embeddings", {"input": ["a", "b"]}, "embedding", 2),
    ("tokenize", {"content": "a"}, "tokenize", 0),
    ("detokenize", {"tokens": [1]}, "detokenize", 0),
    ("apply-template", {"messages": [{"role": "user", "content": "a"}], "tools": []}, "apply-template", 0),
]


@pytest.mark.parametrize(("route", "body", "endpoint", "weight"), REQUESTS, ids=str)
def test_a_request_goes_on_the_bus_as_it_is(
    ask: AppClient, route: str, body: dict[str, Any], endpoint: str, weight: int
) -> None:
    ask.answers[endpoint] = {"any": "answer"}
    result = ask("POST", f"/{route}?model=tiny", body)
    assert (result.status_code, result.json) == (200, {"any": "answer"})
    (question,) = ask.asked(work.SubmitRequest)
    assert (question.endpoint, question.model, question.weight) == (endpoint, "tiny", weight)
    assert not question.stream
    assert json.loads(ask.bus.bodies[0]) == body


def test_response_fields_stay_in_the_gateway(ask: AppClient) -> None:
    ask.answers["completion"] = [LAST, {**LAST, "index": 1}]
    wanted = ["index", "generation_settings/seed", "no/such", "content/length"]
    result = ask("POST", "/completion", {"prompt": ["a", "b"], "response_fields": wanted})
    assert result.json == [{"index": index, "generation_settings/seed": 1} for index in (0, 1)]
    assert json.loads(ask.bus.bodies[0]) == {"prompt": ["a", "b"]}


def test_a_stream_is_passed_on_byte_by_byte(ask: AppClient) -> None:
    events = StreamedAnswer([TOKEN, LAST])
    ask.answers["completion"] = events
    result = ask("POST", "/completion", {"prompt": "a", "stream": True})
    assert result.content == b"".join(events.pieces)
    assert result.headers["content-type"].startswith("text/event-stream")
    assert ask.asked(work.SubmitRequest)[0].stream


def test_the_last_event_of_a_stream_has_the_wanted_fields_alone() -> None:
    writer = CompletionStreamWriter(["content", "generation_settings/n_predict"])
    token, last = (b"data: " + json.dumps(each, separators=(",", ":")).encode() + b"\n\n" for each in (TOKEN, LAST))
    assert writer.events(token) == token
    assert writer.events(token + last) == token + b'data: {"content":"","generation_settings/n_predict":3}\n\n'
    assert writer.end() == b""


def test_a_broken_stream_ends_with_an_error_and_no_stop(ask: AppClient) -> None:
    ask.answers["completion"] = StreamedAnswer([TOKEN], Failure(Code.BACKEND_DIED, "it died"))
    result = ask("POST", "/completion", {"prompt": "a", "stream": True}, headers={"X-Request-ID": "r1"})
    token, error = [json.loads(event.removeprefix("data: ")) for event in result.text.split("\n\n") if event]
    assert token == TOKEN
    assert error == {
        "error": {
            "code": 500,
            "message": "it died",
            "type": "server_error",
            "reason": "backend_died",
            "param": None,
            "request_id": "r1",
            "model": "latest",
            "tokens_sent": 1,
        }
    }


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("completion", {}, "prompt"),
    ("completion", {"prompt": 5}, "prompt"),
    ("completion", {"prompt": []}, "prompt"),
    ("completion", {"prompt": [[]]}, "prompt"),
    ("completion", {"prompt": [[1], []], "n_cmpl": 2}, "prompt"),
    ("completion", {"prompt": "", "n_cmpl": 2}, "prompt"),
    ("completion", {"prompt": ["a", {"prompt_string": ""}], "n": 2}, "prompt"),
    ("embedding", {"content": [[]]}, "content"),
    ("completion", {"prompt": [1, [2]]}, "prompt"),
    ("completion", {"prompt": [None]}, "prompt"),
    ("completion", {"prompt": "a", "stream": "yes"}, "stream"),
    ("completion", {"prompt": "a", "n_predict": "3"}, "n_predict"),
    ("completion", {"prompt": "a", "n_cmpl": 0}, "n_cmpl"),
    ("completion", {"prompt": "a", "response_fields": "content"}, "response_fields"),
    ("completion", {"prompt": "a", "model": 5}, "model"),
    ("infill", {"input_prefix": "a"}, "input_suffix"),
    ("infill", {"input_prefix": "a", "input_suffix": 5}, "input_suffix"),
    ("infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "x"}]}, "input_extra[0].text"),
    ("embedding", {}, "content"),
    ("embedding", {"content": []}, "content"),
    ("tokenize", {}, "content"),
    ("tokenize", {"content": 5}, "content"),
    ("tokenize", {"content": "a", "add_special": 1}, "add_special"),
    ("detokenize", {"tokens": [-1]}, "tokens[0]"),
    ("detokenize", {"tokens": [1.5]}, "tokens[0]"),
    ("detokenize", {"tokens": "a"}, "tokens"),
    ("apply-template", {}, "messages"),
    ("apply-template", {"messages": []}, "messages"),
]


@pytest.mark.parametrize(("route", "body", "param"), WRONG, ids=str)
def test_a_refusal_names_the_field(ask: AppClient, route: str, body: dict[str, Any], param: str) -> None:
    result = ask("POST", f"/{route}", body)
    error = result.json["error"]
    assert (result.status_code, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert error["param"] == param
    assert not ask.bus.sent


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(Code.CONTEXT_EXCEEDED, "no"), "exceed_context_size_error"),
        (Failure(Code.UNAUTHORIZED, "no"), "authentication_error"),
        (Failure(Code.FORBIDDEN, "no"), "permission_error"),
        (Failure(Code.MODEL_NOT_FOUND, "no"), "not_found_error"),
        (Failure(Code.TOO_LARGE, "no"), "invalid_request_error"),
        (Failure(Code.UNSUPPORTED, "no"), "not_supported_error"),
        (Failure(Code.OVERLOADED, "no", retry_after=1), "unavailable_error"),
        (Failure(Code.BACKEND_ERROR, "no"), "server_error"),
    ],
)
def test_the_types_of_errors_are_llama_servers(ask: AppClient, failure: Failure, kind: str) -> None:
    ask.answers["tokenize"] = failure
    result = ask("POST", "/tokenize", {"content": "a"})
    error = result.json["error"]
    assert (result.status_code, error["code"], error["type"]) == (failure.http_status, failure.http_status, kind)
    assert error["reason"] == failure.code.value


def test_unknown_methods_have_the_same_form(ask: AppClient) -> None:
    assert ask("GET", "/completion").json["error"]["code"] == 405
    assert ask("GET", "/no-such-route").json["error"]["code"] == "not_found"


@pytest.mark.parametrize("path", ["/home/x/m.gguf", "C:\\models\\m.gguf", "m.gguf"])
def test_props_have_the_bare_name_of_the_file(path: str) -> None:
    props = json.loads(public_props(json.dumps({"model_path": path, "total_slots": 1}).encode(), "m"))
    assert props == {"model_path": "m.gguf", "total_slots": 1, "model_alias": "m"}


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"model_path": 5}'])
def test_malformed_props_are_a_backend_error(answer: bytes) -> None:
    with pytest.raises(LemonbusError) as caught:
        public_props(answer, "m")
    assert caught.value.failure.code is Code.BACKEND_ERROR


def test_fields_are_selected_by_their_paths() -> None:
    assert selected_fields({"a": {"b": {"c": 1}}, "d": [2]}, ["a/b/c", "a/b", "d", "d/0"]) == {
        "a/b/c": 1,
        "a/b": {"c": 1},
        "d": [2],
    }
