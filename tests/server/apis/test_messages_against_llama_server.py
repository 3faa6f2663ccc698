"""Our Messages API and llama-server's own, compared field by field for the same model and request. ``DIFFERENCES``

lists the intended differences and their reasons; everything else must be equal.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.clients.http_client import engine_client
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer

DIFFERENCES = {
    "id": "ours begins with msg_, as Anthropic's; llama-server's is that of a chat completion",
    "model": "ours is the name in the request",
    "usage.input_tokens, usage.cache_read_input_tokens": "depend on the requests before: their sum is compared",
    "usage.cache_creation_input_tokens": "llama-server leaves it out",
    "stop_reason": "llama-server says end_turn where a stop sequence ended the answer",
    "message_start.usage": "ours counts no tokens yet; the totals are in message_delta, where llama-server has output_tokens alone",
    "content_block.input, content_block.signature": "llama-server leaves them out, and the anthropic package expects them",
    "order of blocks": "llama-server begins a text before the block of thoughts has ended: blocks are compared whole",
    "tool_use.id": "random in both",
}
HI = [{"role": "user", "content": "Hi"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "get_weather", "description": "Weather", "input_schema": CITY}]
USE = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}
ROUND_TRIP = [
    *HI,
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "sunny"}]},
]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("tiny-chat", {}),
    "system": ("tiny-chat", {"system": "Be brief."}),
    "limit": ("tiny-loop", {"max_tokens": 5}),
    "stop sequence": ("tiny-chat", {"stop_sequences": ["story"]}),
    "tool": ("tiny-tool", {"tools": TOOLS}),
    "any tool": ("tiny-tool", {"tools": TOOLS, "tool_choice": {"type": "any"}}),
    "round trip": ("tiny-think", {"tools": TOOLS, "messages": ROUND_TRIP}),
    "thinking": ("tiny-think", {}),
}


def ask_both(server: LemonbusServer, path: str, name: str, body: dict[str, Any]) -> tuple[HttpExchange, HttpExchange]:
    """Return the answers of the server, which loads the model, and of the engine that it has started."""
    model = f"extra.{name}"
    ours = server.client.post(path, {**body, "model": model})
    theirs = engine_client(server.engine(model)).post(path, body)
    assert (ours.status, theirs.status) == (200, 200), (theirs, ours)
    return ours, theirs


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what may differ."""
    usage = message.pop("usage")
    message["tokens"] = (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"])
    del message["id"], message["model"]
    if message["stop_sequence"]:
        del message["stop_reason"]
    for block in message["content"]:
        if block["type"] == "tool_use":
            assert block.pop("id")
    return message


def put_together(stream: str) -> dict[str, Any]:
    """Return the message of a stream, its blocks by their index."""
    events = [json.loads(event.partition("data: ")[2]) for event in stream.split("\n\n") if "data: " in event]
    assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
    message: dict[str, Any] = events[0]["message"]
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"]}
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            name = delta.pop("type").replace("_delta", "")
            ((key, text),) = delta.items()
            known = block.get(key, "") if name != "input_json" else block.get("input") or ""
            block["input" if name == "input_json" else key] = known + text
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    message["content"] = [
        {**block, "input": json.loads(block["input"])} if block["type"] == "tool_use" else block
        for _, block in sorted(blocks.items())
    ]
    return message


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_field_by_field(shared_server: LemonbusServer, case: str, streamed: bool) -> None:
    model, changes = CASES[case]
    request = {"max_tokens": 60, "messages": HI, **changes, "stream": streamed}
    ours, theirs = ask_both(shared_server, "/v1/messages", model, request)
    if streamed:
        assert comparable(put_together(ours.body.decode())) == comparable(put_together(theirs.body.decode()))
    else:
        assert comparable(ours.json()) == comparable(theirs.json())


@pytest.mark.parametrize("case", CASES)
def test_counts_of_tokens(shared_server: LemonbusServer, case: str) -> None:
    model, changes = CASES[case]
    ours, theirs = ask_both(shared_server, "/v1/messages/count_tokens", model, {"messages": HI, **changes})
    assert ours.json() == theirs.json()
