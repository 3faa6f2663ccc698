"""Every route refuses a grammar that an engine could not compile in time, and names the field as it is called there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.server import LemonbusServer

MODEL = "extra.tiny-chat"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [f"v{i}" for i in range(2_000)]}}}
MESSAGES = [{"role": "user", "content": "hi"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("/v1/chat/completions", "response_format", {"messages": MESSAGES, "response_format": FORMAT}),
        ("/v1/chat/completions", "json_schema", {"messages": MESSAGES, "json_schema": SCHEMA}),
        ("/v1/completions", "json_schema", {"prompt": "hi", "json_schema": SCHEMA}),
        ("/completion", "json_schema", {"prompt": "hi", "json_schema": SCHEMA}),
        ("/infill", "json_schema", {"input_prefix": "a", "input_suffix": "b", "json_schema": SCHEMA}),
        ("/api/chat", "format", {"messages": MESSAGES, "format": SCHEMA}),
        ("/api/generate", "format", {"prompt": "hi", "format": SCHEMA}),
        (
            "/v1/messages",
            "output_config",
            {
                "messages": MESSAGES,
                "max_tokens": 1,
                "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            },
        ),
        (
            "/v1/messages",
            "tools",
            {"messages": MESSAGES, "max_tokens": 1, "tools": [{"name": "a", "input_schema": SCHEMA}]},
        ),
        (
            "/v1/responses",
            "text",
            {"input": "hi", "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_oversized_schema(
    shared_server: LemonbusServer, path: str, field: str, body: dict[str, Any], stream: bool
) -> None:
    refused = shared_server.client.post(path, {"model": MODEL, **body, "stream": stream})
    assert refused.status == 400, refused
    assert f"`{field}` has 2000 alternatives; the limit is 1000" in refused.body.decode()
