"""Features that are passed on to the engine: tools, response formats, reasoning, pictures, adapters."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest

from tests.support.models.tiny_models import CHAT_TEXT, adapters
from tests.support.server import LemonbusServer

CHAT, TOOL, THINK, VISION = "extra.tiny-chat", "extra.tiny-tool", "extra.tiny-think", "extra.tiny-vision"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY}}]


def png(red: int) -> str:
    """Return a picture of eight by eight pixels of one colour as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([red, 0, 0]) * 8 for _ in range(8))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def joined(chunks: list[Any], field: str) -> str:
    """Return one field of all deltas, put together."""
    return "".join(
        choice["delta"].get(field) or "" for chunk in chunks for choice in chunk["choices"] if choice["delta"]
    )


def test_a_tool_call(shared_server: LemonbusServer) -> None:
    choice = shared_server.client.chat(TOOL, tools=TOOLS).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["id"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


PLAIN = {"properties": {"n": {"const": 7}}, "required": ["n"]}
PLAIN_TOOL = {"type": "function", "function": {"name": "answer", "parameters": PLAIN}}
NO_PLACE = '299 lemonbus "the chat template of this model has no place for tools: the model was not told of them"'


def test_a_model_whose_template_has_no_tools_calls_one_if_it_must(shared_server: LemonbusServer) -> None:
    named = {"type": "function", "function": {"name": "answer"}}
    asked: dict[str, Any] = {"max_tokens": 400, "tools": [PLAIN_TOOL], "tool_choice": named}
    answer = shared_server.client.chat(CHAT, **asked, n=2)
    assert "warning" not in answer.headers
    for choice in answer.json()["choices"]:
        (call,) = choice["message"]["tool_calls"]
        assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "answer")
        assert json.loads(call["function"]["arguments"]) == {"n": 7}
    stream = shared_server.client.chat(CHAT, **asked, stream=True)
    assert stream.done
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert joined(stream.chunks, "content") == ""


def test_a_model_whose_template_has_no_tools_is_asked_with_a_warning_if_it_may(shared_server: LemonbusServer) -> None:
    for stream in (False, True):
        answer = shared_server.client.chat(CHAT, tools=[PLAIN_TOOL], stream=stream)
        assert (answer.text, answer.headers["warning"]) == (CHAT_TEXT, NO_PLACE)
    wrong = shared_server.client.chat(CHAT, tool_choice="required")
    assert (wrong.status, wrong.error["param"]) == (400, "tool_choice")


def test_a_streamed_tool_call(shared_server: LemonbusServer) -> None:
    stream = shared_server.client.chat(TOOL, tools=TOOLS, stream=True)
    assert stream.done
    calls = [
        call
        for chunk in stream.chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls") or []
    ]
    assert {call["index"] for call in calls} == {0}
    assert "".join(call["function"].get("name") or "" for call in calls) == "get_weather"
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    assert json.loads(arguments) == {"city": "Paris"}
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_the_answer_of_a_tool_is_understood(shared_server: LemonbusServer) -> None:
    function = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]
    answer = shared_server.client.chat(THINK, messages=messages, tools=TOOLS)
    assert answer.status == 200, answer


def test_reasoning(shared_server: LemonbusServer) -> None:
    message = shared_server.client.chat(THINK).json()["choices"][0]["message"]
    assert message["content"] == "Forty two."
    assert message["reasoning_content"].strip() == "The user asks for a number."
    stream = shared_server.client.chat(THINK, stream=True)
    assert joined(stream.chunks, "content") == "Forty two."
    assert joined(stream.chunks, "reasoning_content").strip() == "The user asks for a number."


@pytest.mark.parametrize("stream", [True, False])
def test_a_response_format(shared_server: LemonbusServer, stream: bool) -> None:
    only = {"type": "object", "properties": {"answer": {"enum": ["yes"]}}, "required": ["answer"]}
    form = {"type": "json_schema", "json_schema": {"name": "only", "strict": True, "schema": only}}
    answer = shared_server.client.chat(CHAT, response_format=form, stream=stream, max_tokens=60)
    assert answer.status == 200, answer
    assert json.loads(answer.text) == {"answer": "yes"}


def test_a_picture(shared_server: LemonbusServer) -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": png(200)}}]
    messages = [{"role": "user", "content": parts}]
    answer = shared_server.client.chat(VISION, messages=messages)
    assert answer.status == 200, answer
    assert answer.text == CHAT_TEXT
    words = [{"role": "user", "content": "What is it?"}]
    without = shared_server.client.chat(VISION, messages=words).json()["usage"]["prompt_tokens"]
    assert answer.json()["usage"]["prompt_tokens"] >= without + 16
    assert shared_server.client.chat(VISION, messages=messages, stream=True).text == CHAT_TEXT


def test_an_image_for_a_model_without_vision(shared_server: LemonbusServer) -> None:
    parts = [{"type": "image_url", "image_url": {"url": png(1)}}]
    answer = shared_server.client.chat(CHAT, messages=[{"role": "user", "content": parts}])
    assert answer.status == 400, answer
    assert "image" in answer.error["message"]


def test_an_adapter(unloaded_server: LemonbusServer) -> None:
    server, adapter = unloaded_server, adapters() / "tiny-lora.gguf"
    elsewhere = server.client.post("/v1/load", {"model_name": CHAT, "llamacpp_args": "--lora /etc/passwd"})
    assert (elsewhere.status, elsewhere.error["param"]) == (400, "llamacpp_args")
    loaded = server.client.post("/v1/load", {"model_name": CHAT, "llamacpp_args": f"--lora {adapter}"})
    assert loaded.status == 200, loaded
    assert server.client.chat(CHAT, max_tokens=20).text != CHAT_TEXT
    assert server.client.chat(CHAT, max_tokens=20, lora=[{"id": 0, "scale": 0.0}]).text.strip() == CHAT_TEXT.strip()


HI: dict[str, Any] = {"model": THINK, "messages": [{"role": "user", "content": "hi"}]}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {**HI, "reasoning_effort": "none"}),
        ("/v1/chat/completions", {**HI, "reasoning": {"effort": "none"}}),
        ("/v1/chat/completions", {**HI, "reasoning": {"enabled": False}}),
        ("/v1/chat/completions", {**HI, "thinking": {"type": "disabled"}}),
        ("/v1/chat/completions", {**HI, "enable_thinking": False}),
        ("/v1/chat/completions", {**HI, "think": False}),
        ("/v1/chat/completions", {**HI, **OFF}),
        ("/v1/messages", {**HI, "max_tokens": 99, "thinking": {"type": "disabled"}}),
        ("/v1/responses", {"model": THINK, "input": "hi", "reasoning": {"effort": "none"}}),
        ("/api/chat", {**HI, "think": False}),
        ("/api/generate", {"model": THINK, "prompt": "hi", "think": False}),
    ],
)
def test_a_model_does_not_think_if_it_is_told_not_to(
    shared_server: LemonbusServer, path: str, fields: dict[str, Any]
) -> None:
    answer = shared_server.client.post(path, fields)
    assert (answer.status, b"Forty two." in answer.body, b"asks for" in answer.body) == (200, True, False), answer


def test_other_efforts_reach_the_engine(shared_server: LemonbusServer) -> None:
    for effort in ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}):
        assert b"asks for" in shared_server.client.post("/v1/chat/completions", {**HI, **effort}).body
