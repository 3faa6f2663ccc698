"""``messages`` without a server: whole answers, refusals, broken streams, counts of tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.anthropic.message_events import MessageEventWriter
from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages import work
from tests.gateway.app_client import AppClient, StreamedAnswer

URL = "/v1/messages"
HI = [{"role": "user", "content": "Hi"}]
LEAST: dict[str, Any] = {"model": "m", "max_tokens": 16, "messages": HI}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
TOOL = {"name": "clock", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "a", "name": "clock", "input": {}}
CHUNKS = [
    {"id": "chatcmpl-x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
    {"id": "chatcmpl-x", "choices": [{"index": 0, "delta": {"content": "Once"}}]},
]


def completion(finish_reason: str = "stop", stop_reason: str | None = None, **message: Any) -> dict[str, Any]:
    """Return an engine's whole answer."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}
    if stop_reason is not None:
        choice["stop_reason"] = stop_reason
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    return {"id": "chatcmpl-x", "model": "m", "choices": [choice], "usage": usage}


def image(**source: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image", "source": source}]}]


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_a_whole_message(ask: AppClient, prefix: str) -> None:
    ask.answers["chat/completions"] = completion(content="Once", reasoning_content="Hm.")
    result = ask("POST", f"{prefix}/messages", LEAST)
    assert result.status_code == 200
    assert result.json == {
        "id": "msg_x",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "Once"},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": 4,
        },
    }
    assert result.headers["request-id"] == result.headers["X-Request-ID"]
    (asked,) = ask.asked(work.SubmitRequest)
    assert (asked.endpoint, asked.model, asked.stream) == ("chat/completions", "m", False)


def calls(arguments: str) -> list[dict[str, Any]]:
    return [{"id": "a", "type": "function", "function": {"name": "clock", "arguments": arguments}}]


@pytest.mark.parametrize(
    ("answer", "max_tokens", "reason", "sequence"),
    [
        (completion("stop", content="Once"), 16, "end_turn", None),
        (completion("stop", "END", content="Once"), 16, "stop_sequence", "END"),
        (completion("length", content="Once"), 4, "max_tokens", None),
        (completion("length", content="Once"), 16, "model_context_window_exceeded", None),
        (completion("tool_calls", content="", tool_calls=calls("{}")), 16, "tool_use", None),
        (completion("content_filter", content=""), 16, "refusal", None),
    ],
)
def test_every_reason_to_stop(
    ask: AppClient, answer: dict[str, Any], max_tokens: int, reason: str, sequence: str | None
) -> None:
    ask.answers["chat/completions"] = answer
    found = ask("POST", URL, {**LEAST, "max_tokens": max_tokens}).json
    assert (found["stop_reason"], found["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    ("finish_reason", "arguments", "status", "given"),
    [
        ("tool_calls", '{"zone":"UTC"}', 200, {"zone": "UTC"}),
        ("tool_calls", "", 200, {}),
        ("length", '{"zone":', 200, {}),
        ("tool_calls", '{"zone":', 500, None),
        ("tool_calls", "[]", 500, None),
    ],
)
def test_arguments_of_a_call(
    ask: AppClient, finish_reason: str, arguments: str, status: int, given: dict[str, str] | None
) -> None:
    ask.answers["chat/completions"] = completion(finish_reason, content=None, tool_calls=calls(arguments))
    result = ask("POST", URL, LEAST)
    assert result.status_code == status
    if status == 200:
        assert result.json["content"] == [{"type": "tool_use", "id": "a", "name": "clock", "input": given}]
    else:
        assert result.json["error"]["type"] == "api_error"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [USE]}]}, "tool_use"),
        ({"messages": [{"role": "assistant", "content": image(type="url", url="x")[0]["content"]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]}, "tool_use_id"),
        ({"messages": image(type="url", url="http://127.0.0.1/a.png")}, "not fetched"),
        ({"messages": image(type="url", url="https://a.example/a.png")}, "base64"),
        ({"messages": image(type="file", file_id="f")}, "base64"),
        ({"messages": image(type="base64", media_type="image/png", data="no base64!")}, "base64"),
        ({"messages": image(type="base64", media_type="image/tiff", data="AAAA")}, "media_type"),
        ({"system": [{"type": "image"}]}, "system"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tools": [SEARCH]}, "web_search_20250305"),
        ({"tools": [TOOL, {"type": "computer_20250124", "name": "computer"}]}, "computer_20250124"),
        ({"tools": [TOOL, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice.name"),
        ({"tools": [{"name": "clock"}]}, "input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tools"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens"),
        ({"mcp_servers": [{"url": "http://a.example"}]}, "mcp_servers"),
        ({"metadata": {"user_id": 5}}, "user_id"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_is_refused_names_the_field(ask: AppClient, changes: dict[str, Any], word: str) -> None:
    result = ask("POST", URL, {**LEAST, **changes})
    error = result.json["error"]
    assert (result.status_code, result.json["type"], error["type"]) == (400, "error", "invalid_request_error")
    assert word in error["message"] + error["param"]
    assert result.json["request_id"] == result.headers["request-id"]
    assert not ask.asked(work.SubmitRequest)


def test_a_tool_that_anthropic_runs_is_left_out_beside_others(ask: AppClient) -> None:
    ask.answers["chat/completions"] = completion(content="Once")
    assert ask("POST", URL, {**LEAST, "tools": [SEARCH, TOOL]}).status_code == 200
    assert [tool["function"]["name"] for tool in json.loads(ask.bus.bodies[0])["tools"]] == [TOOL["name"]]


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
@pytest.mark.parametrize("path", [URL, f"{URL}/count_tokens"])
def test_a_thread_is_refused_so_that_tool_runners_send_the_whole_conversation(
    ask: AppClient, thread: dict[str, Any], path: str
) -> None:
    result = ask("POST", path, {**LEAST, "thread": thread})
    assert result.status_code == 400
    assert result.json["error"]["type"] == "invalid_request_error"
    assert result.json["error"]["details"]["error_code"] == "thread_unsupported_request"
    assert not ask.asked(work.SubmitRequest)


def test_what_changes_nothing_is_accepted(ask: AppClient) -> None:
    ask.answers["chat/completions"] = completion(content="Once")
    more = {"cache_control": {"type": "ephemeral"}, "service_tier": "auto", "inference_geo": "eu", "mcp_servers": []}
    assert ask("POST", URL, {**LEAST, **more}).status_code == 200
    assert json.loads(ask.bus.bodies[0]) == {"model": "m", "messages": HI, "max_tokens": 16}


@pytest.mark.parametrize(
    ("chunks", "failure", "code"),
    [
        (CHUNKS, Failure(Code.BACKEND_DIED, "the engine died", model="m"), Code.BACKEND_DIED),
        ([*CHUNKS, b"data: nonsense\n\n"], None, Code.BACKEND_ERROR),
    ],
)
def test_a_broken_stream_ends_with_an_error(
    ask: AppClient, chunks: list[Any], failure: Failure | None, code: Code
) -> None:
    ask.answers["chat/completions"] = StreamedAnswer(chunks, failure)
    result = ask("POST", URL, {**LEAST, "stream": True})
    *events, last, end = result.text.split("\n\n")
    assert (result.headers["Content-Type"], end) == ("text/event-stream; charset=utf-8", "")
    name, _, data = last.partition("\n")
    error = json.loads(data.removeprefix("data: "))
    assert (name, error["type"], error["error"]["type"], error["error"]["code"]) == (
        "event: error",
        "error",
        "api_error",
        code,
    )
    assert error["request_id"] == result.headers["request-id"]
    assert error["error"]["tokens_sent"] >= 1
    assert not any("message_stop" in event or "message_delta" in event for event in events)


def test_calls_that_are_mixed_up_break_the_stream(ask: AppClient) -> None:
    def call(index: int) -> dict[str, Any]:
        function = {"name": "clock", "arguments": "{}"}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": index, "id": "a", "function": function}]}}]}

    ask.answers["chat/completions"] = StreamedAnswer([call(0), call(1), call(0)])
    result = ask("POST", URL, {**LEAST, "stream": True})
    assert "event: error" in result.text
    assert "message_stop" not in result.text


@pytest.mark.parametrize(("one", "names"), [(False, ["clock", "clock"]), (True, ["clock"])])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_that_makes_two_calls_where_one_was_allowed(
    ask: AppClient, one: bool, names: list[str], streamed: bool
) -> None:
    made = [{**calls("{}")[0], "index": index} for index in (0, 1)]
    chunk = {"choices": [{"index": 0, "finish_reason": "length", "delta": {"tool_calls": made}}]}
    ask.answers["chat/completions"] = (
        StreamedAnswer([chunk]) if streamed else completion("length", content="", tool_calls=made)
    )
    choice = {"type": "auto", "disable_parallel_tool_use": one}
    answer = ask(
        "POST", URL, {**LEAST, "max_tokens": 4, "tools": [TOOL], "tool_choice": choice, "stream": streamed}
    ).text
    assert answer.count('"type":"tool_use"') == len(names)
    assert f'"stop_reason":"{"tool_use" if one else "max_tokens"}"' in answer


def test_a_ping_is_an_event_inside_a_message_only() -> None:
    writer = MessageEventWriter("m", 16)
    assert writer.ping().startswith(b":"), "no event precedes message_start"
    writer.events(b'data: {"id":"chatcmpl-x","choices":[]}\n\n')
    assert writer.ping() == b'event: ping\ndata: {"type":"ping"}\n\n'


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_a_count_of_tokens(ask: AppClient, prefix: str) -> None:
    ask.answers["chat/completions/input_tokens"] = {"input_tokens": 22, "object": "response.input_tokens"}
    request = {"model": "m", "messages": HI, "system": "Be brief.", "tools": [TOOL]}
    assert ask("POST", f"{prefix}/messages/count_tokens", request).json == {"input_tokens": 22}
    (asked,) = ask.asked(work.SubmitRequest)
    assert (asked.model, asked.weight) == ("m", 0)
    body = json.loads(ask.bus.bodies[0])
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tools"][0]["function"]["name"] == "clock"


def test_tokens_that_the_engine_cannot_count(ask: AppClient) -> None:
    unserved = "m is a model for llm; it does not serve chat/completions/input_tokens"
    ask.answers["chat/completions/input_tokens"] = Failure(Code.UNSUPPORTED, unserved)
    result = ask("POST", f"{URL}/count_tokens", {"model": "m", "messages": HI})
    assert (result.status_code, result.json["error"]["type"]) == (501, "api_error")
    assert "count" in result.json["error"]["message"]
