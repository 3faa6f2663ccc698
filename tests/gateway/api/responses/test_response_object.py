"""A whole chat completion as a response: the same as a stream of it, and what cannot be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.api.responses.output.event_stream import ResponseEventWriter
from gateway.api.responses.output.response_object import whole_response
from gateway.requests.answer_stream import WholeAnswer
from protocol.failures import Code, LemonbusError
from protocol.messages.events import Outcome
from tests.gateway.api.responses.deterministic import NOW, builder

CALLS = [{"id": letter, "type": "function", "function": {"name": "f", "arguments": "{}"}} for letter in "ab"]
USAGE = {"prompt_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}


def answer(message: Any, finish_reason: str = "stop") -> WholeAnswer:
    choices = [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}]
    body = msgspec.json.encode({"model": "m", "choices": choices, "usage": USAGE})
    return WholeAnswer(body, "m", Outcome())


@pytest.mark.parametrize(
    ("message", "finish_reason", "types", "status"),
    [
        ({"content": "Hi"}, "stop", ["message"], "completed"),
        ({"content": ""}, "stop", ["message"], "completed"),
        ({"content": "Hi", "reasoning_content": "Hm"}, "length", ["reasoning", "message"], "incomplete"),
        ({"content": None, "tool_calls": CALLS}, "tool_calls", ["function_call", "function_call"], "completed"),
    ],
)
def test_it_equals_the_stream(message: Any, finish_reason: str, types: list[str], status: str) -> None:
    whole = whole_response(builder(), answer(message, finish_reason), lambda: NOW)
    assert [item["type"] for item in whole["output"]] == types
    assert (whole["status"], whole["output"][-1]["status"]) == (status, status)
    assert whole["usage"]["input_tokens_details"]["cached_tokens"] == 3

    calls = [{"index": position, **call} for position, call in enumerate(message.get("tool_calls", []))]
    chunk = {
        "choices": [{"delta": {**message, "tool_calls": calls}, "finish_reason": finish_reason}],
        "usage": USAGE,
    }
    writer = ResponseEventWriter(builder(), lambda: NOW)
    writer.events(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
    assert writer.response() == whole


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b'{"choices":[{"message":5}]}'])
def test_an_invalid_answer(body: bytes) -> None:
    with pytest.raises(LemonbusError) as problem:
        whole_response(builder(), WholeAnswer(body, "m", Outcome()))
    assert problem.value.failure.code is Code.BACKEND_ERROR
