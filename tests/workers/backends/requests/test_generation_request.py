"""Large maxima of schemas do not reach an engine; all else of a request does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from workers.backends.llamacpp.requests.native_request import native_request
from workers.backends.requests.generation_request import generation_request

LARGE = {"type": "object", "properties": {"script": {"type": "string", "minLength": 1, "maxLength": 524_288}}}
PLAIN = {"type": "object", "properties": {"script": {"type": "string", "minLength": 1}}}
KEPT = {"type": "object", "properties": {"maxLength": {"type": "array", "maxItems": 9_999, "maxLength": "20000"}}}


def tools(schema: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}


def sent(endpoint: str, body: dict[str, Any], *, escaped: bool = False) -> dict[str, Any]:
    data = msgspec.json.encode(body)
    if escaped:
        data = data.replace(b"maxLength", b"max\\u004cength")
    native = endpoint in ("completion", "infill")
    request = (native_request if native else generation_request)(endpoint, data, False, {}, {})
    fields: dict[str, Any] = msgspec.json.decode(request.body)
    return fields


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("max_tokens", [4, 400])
def test_large_maxima_are_removed(max_tokens: int, escaped: bool) -> None:
    chat = {"messages": [], "max_tokens": max_tokens}
    assert sent("chat/completions", {**chat, **tools(LARGE)}, escaped=escaped)["tools"] == tools(PLAIN)["tools"]
    for name in ("json_schema", "response_format"):
        assert sent("chat/completions", {**chat, name: LARGE}, escaped=escaped)[name] == PLAIN
    assert sent("completion", {"prompt": "a", "json_schema": LARGE}, escaped=escaped)["json_schema"] == PLAIN


def test_other_fields_of_schemas_stay() -> None:
    assert sent("chat/completions", {"messages": [], "json_schema": KEPT})["json_schema"] == KEPT
    assert sent("completion", {"prompt": "a", "json_schema": KEPT})["json_schema"] == KEPT
