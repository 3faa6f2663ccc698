"""Wrong requests for ``generate`` and ``chat``: which field is named, and that nothing is sent."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.gateway.app_client import AppClient

GENERATE, CHAT = "/api/generate", "/api/chat"
MESSAGE = {"role": "user", "content": "Hi"}
VALID: dict[str, dict[str, Any]] = {
    GENERATE: {"model": "m", "prompt": "Hi"},
    CHAT: {"model": "m", "messages": [MESSAGE]},
}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("path", "wrong", "param"),
    [
        (GENERATE, {"prompt": None}, "prompt"),
        (GENERATE, {"prompt": ["a"]}, "prompt"),
        (GENERATE, {"model": 1}, "model"),
        (GENERATE, {"stream": "yes"}, "stream"),
        (GENERATE, {"system": 1}, "system"),
        (GENERATE, {"suffix": "b"}, "suffix"),
        (GENERATE, {"template": "{{ .Prompt }}"}, "template"),
        (GENERATE, {"context": [1, 2]}, "context"),
        (GENERATE, {"raw": True, "system": "Be brief."}, "system"),
        (GENERATE, {"raw": True, "images": [PNG]}, "images"),
        (GENERATE, {"images": ["AAAA"]}, "images[0]"),
        (GENERATE, {"images": [PNG, "https://example.com/a.png"]}, "images[1]"),
        (GENERATE, {"images": [PNG + "!"]}, "images[0]"),
        (GENERATE, {"images": ["iVBORw0KGgo\ud7ff"]}, "images[0]"),
        (GENERATE, {"max_tokens": -3}, "max_tokens"),
        (GENERATE, {"max_tokens": 1.5}, "max_tokens"),
        (GENERATE, {"temperature": -1}, "temperature"),
        (GENERATE, {"top_p": 2}, "top_p"),
        (GENERATE, {"stop": [1]}, "stop[0]"),
        (GENERATE, {"format": "xml"}, "format"),
        (GENERATE, {"format": 5}, "format"),
        (GENERATE, {"raw": True, "format": []}, "format"),
        (GENERATE, {"think": "very"}, "think"),
        (GENERATE, {"keep_alive": "soon"}, "keep_alive"),
        (GENERATE, {"keep_alive": True}, "keep_alive"),
        (GENERATE, {"options": []}, "options"),
        (GENERATE, {"options": {"num_predict": "5"}}, "options.num_predict"),
        (GENERATE, {"options": {"seed": 2**40}}, "options.seed"),
        (GENERATE, {"options": {"num_predict": 5}, "max_tokens": 6}, "max_tokens"),
        (GENERATE, {"options": {"stop": ["a"]}, "stop": ["b"]}, "stop"),
        (GENERATE, {"options": {"temperature": 0.5}, "temperature": 0}, "temperature"),
        (GENERATE, {"top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"messages": None}, "messages"),
        (CHAT, {"messages": [MESSAGE] * 4_097}, "messages"),
        (CHAT, {"messages": [{"content": "a"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "content": [1]}]}, "messages[0].content"),
        (CHAT, {"messages": [MESSAGE, {"role": "user", "images": ["?"]}]}, "messages[1].images[0]"),
        (
            CHAT,
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (CHAT, {"tools": [TOOL, 1]}, "tools[1]"),
        (CHAT, {"tools": TOOL}, "tools"),
    ],
)
def test_the_wrong_field_is_named_and_nothing_is_sent(
    ask: AppClient, path: str, wrong: dict[str, Any], param: str
) -> None:
    result = ask("POST", path, {**VALID[path], **wrong})
    assert (result.status_code, list(result.json)) == (400, ["error"]), result.text
    error = result.json["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request", "invalid_request", param), error
    assert error["request_id"] == result.headers["X-Request-ID"]
    assert not ask.bus.sent


@pytest.mark.parametrize("path", [GENERATE, CHAT])
def test_a_body_that_is_not_json_says_where(ask: AppClient, path: str) -> None:
    result = ask("POST", path, b'{"model": ')
    assert result.status_code == 400
    assert result.json["error"]["code"] == "invalid_json"
    assert "line 1 column" in result.json["error"]["message"]
