"""Requests for ``generate`` and ``chat`` → what goes on the bus."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from protocol.messages import work
from tests.gateway.app_client import AppClient, StreamedAnswer

GENERATE, CHAT = "/api/generate", "/api/chat"
DEFAULTS = {"sampling_defaults": {"max_length": 512, "temperature": 0.7, "top_p": 0.9, "top_k": 40}}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
PROMPT: dict[str, Any] = {"model": "m", "prompt": "Hi"}
MESSAGE = {"role": "user", "content": "Hi"}
TALK: dict[str, Any] = {"model": "m", "messages": [MESSAGE]}
TALKED = {"model": "m", "messages": [MESSAGE], **DEFAULTS}
SCHEMA = {"type": "object", "properties": {"a": {"const": 10**30}}}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0....").decode()
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def image(kind: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def called(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.usefixtures("unchanged_media")
@pytest.mark.parametrize(
    ("path", "request_fields", "endpoint", "body"),
    [
        # the prompt
        (GENERATE, PROMPT, "chat/completions", TALKED),
        (GENERATE, {"prompt": "Hi"}, "chat/completions", {"messages": [MESSAGE], **DEFAULTS}),
        (
            GENERATE,
            {**PROMPT, "stream": False, "suffix": "", "template": "", "context": []},
            "chat/completions",
            TALKED,
        ),
        (GENERATE, {**PROMPT, "stream": True}, "chat/completions", {**TALKED, **STREAM}),
        (
            GENERATE,
            {**PROMPT, "system": "Be brief."},
            "chat/completions",
            {**TALKED, "messages": [{"role": "system", "content": "Be brief."}, MESSAGE]},
        ),
        (
            GENERATE,
            {**PROMPT, "images": [PNG, f"data:image/jpeg;base64,{JPEG}"]},
            "chat/completions",
            {
                **TALKED,
                "messages": [
                    {
                        "role": "user",
                        "content": [image("png", PNG), image("jpeg", JPEG), {"type": "text", "text": "Hi"}],
                    }
                ],
            },
        ),
        (
            GENERATE,
            {"model": "m", "images": [PNG]},
            "chat/completions",
            {**TALKED, "messages": [{"role": "user", "content": [image("png", PNG)]}]},
        ),
        (GENERATE, {**PROMPT, "raw": True}, "completions", {"model": "m", "prompt": "Hi", **DEFAULTS}),
        (
            GENERATE,
            {**PROMPT, "raw": True, "stream": True, "format": SCHEMA, "logprobs": True, "top_logprobs": 3},
            "completions",
            {"model": "m", "prompt": "Hi", "json_schema": SCHEMA, "logprobs": 3, **STREAM, **DEFAULTS},
        ),
        (
            GENERATE,
            {**PROMPT, "raw": True, "format": "json"},
            "completions",
            {"model": "m", "prompt": "Hi", "json_schema": {"type": "object"}, **DEFAULTS},
        ),
        # sampling, under both documents' names
        (
            GENERATE,
            {**PROMPT, "max_tokens": 16, "temperature": 0.1, "top_p": 0.5, "top_k": 3, "stop": ["x", ""]},
            "chat/completions",
            {**TALKED, "max_tokens": 16, "temperature": 0.1, "top_p": 0.5, "top_k": 3, "stop": ["x"]},
        ),
        (
            CHAT,
            {**TALK, "max_tokens": 16, "stop": "x", "options": {"num_predict": 16, "stop": ["x"]}},
            "chat/completions",
            {**TALKED, "max_tokens": 16, "stop": ["x"]},
        ),
        (
            CHAT,
            {
                **TALK,
                "options": {
                    "num_predict": 5,
                    "temperature": 0,
                    "top_k": 1,
                    "top_p": 1,
                    "min_p": 0.05,
                    "typical_p": 1,
                    "repeat_last_n": -1,
                    "repeat_penalty": 0.9,
                    "presence_penalty": 1.5,
                    "frequency_penalty": -1,
                    "mirostat": 2,
                    "mirostat_tau": 5,
                    "mirostat_eta": 0.1,
                    "seed": 7,
                    "stop": ["a", "b", "c", "d", "e"],
                },
            },
            "chat/completions",
            {
                **TALKED,
                "max_tokens": 5,
                "temperature": 0,
                "top_k": 1,
                "top_p": 1,
                "min_p": 0.05,
                "typical_p": 1,
                "repeat_last_n": -1,
                "repeat_penalty": 0.9,
                "presence_penalty": 1.5,
                "frequency_penalty": -1,
                "mirostat": 2,
                "mirostat_tau": 5,
                "mirostat_eta": 0.1,
                "seed": 7,
                "stop": ["a", "b", "c", "d", "e"],
            },
        ),
        (CHAT, {**TALK, "options": {"num_predict": -2}}, "chat/completions", {**TALKED, "max_tokens": -1}),
        (
            CHAT,
            {**TALK, "options": {"num_ctx": 99, "num_gpu": 1, "use_mmap": True, "x": {}}},
            "chat/completions",
            TALKED,
        ),
        (CHAT, {**TALK, "options": None, "stop": [], "format": "", "think": None}, "chat/completions", TALKED),
        # the form of the answer
        (
            CHAT,
            {**TALK, "format": "json"},
            "chat/completions",
            {**TALKED, "response_format": {"type": "json_object"}},
        ),
        (
            CHAT,
            {**TALK, "format": SCHEMA},
            "chat/completions",
            {
                **TALKED,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
                },
            },
        ),
        (
            CHAT,
            {**TALK, "think": False},
            "chat/completions",
            {**TALKED, "chat_template_kwargs": {"enable_thinking": False}, "thinking_budget_tokens": 0},
        ),
        (
            CHAT,
            {**TALK, "think": "low"},
            "chat/completions",
            {**TALKED, "chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}},
        ),
        (
            CHAT,
            {**TALK, "logprobs": True, "top_logprobs": 2},
            "chat/completions",
            {**TALKED, "logprobs": True, "top_logprobs": 2},
        ),
        # messages
        (CHAT, {**TALK, "tools": [TOOL]}, "chat/completions", {**TALKED, "tools": [TOOL]}),
        (CHAT, {**TALK, "tools": []}, "chat/completions", TALKED),
        (
            CHAT,
            {"model": "m", "messages": [{"role": "user", "content": "Look", "images": [PNG]}]},
            "chat/completions",
            {
                **TALKED,
                "messages": [{"role": "user", "content": [image("png", PNG), {"type": "text", "text": "Look"}]}],
            },
        ),
        (
            CHAT,
            {
                "model": "m",
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {
                        "role": "assistant",
                        "thinking": "Hm.",
                        "tool_calls": [
                            {"function": {"name": "f", "arguments": {"n": 10**30}}},
                            {"function": {"name": "g"}},
                            {"id": "own", "function": {"name": "f", "arguments": '{"n":2}'}},
                        ],
                    },
                    {"role": "tool", "tool_name": "g", "content": "G"},
                    {"role": "tool", "tool_call_id": "own", "content": "F2"},
                    {"role": "tool", "content": "F1"},
                    {"role": "tool", "tool_name": "h", "content": "H"},
                ],
            },
            "chat/completions",
            {
                **TALKED,
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {
                        "role": "assistant",
                        "content": "",
                        "reasoning_content": "Hm.",
                        "tool_calls": [
                            called("call_0", "f", json.dumps({"n": 10**30}, separators=(",", ":"))),
                            called("call_1", "g", "{}"),
                            called("own", "f", '{"n":2}'),
                        ],
                    },
                    {"role": "tool", "content": "G", "tool_call_id": "call_1", "name": "g"},
                    {"role": "tool", "content": "F2", "tool_call_id": "own", "name": "f"},
                    {"role": "tool", "content": "F1", "tool_call_id": "call_0", "name": "f"},
                    {"role": "tool", "content": "H", "name": "h"},
                ],
            },
        ),
    ],
)
def test_what_goes_on_the_bus(
    ask: AppClient, path: str, request_fields: dict[str, Any], endpoint: str, body: dict[str, Any]
) -> None:
    ask.answers[endpoint] = StreamedAnswer([]) if request_fields.get("stream") else {"choices": []}
    assert ask("POST", path, json.dumps(request_fields, separators=(",", ":")).encode()).status_code == 200
    (sent,) = ask.asked(work.SubmitRequest)
    assert (sent.endpoint, sent.model, sent.weight) == (endpoint, request_fields.get("model", ""), 1)
    assert sent.stream is bool(request_fields.get("stream"))
    assert json.loads(ask.bus.bodies[0]) == body
