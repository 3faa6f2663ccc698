"""Which field of a wrong request is named, and what is not supported."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.messages.responses import GetResponse
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient


def user(*parts: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}]}


FUNCTION = {"type": "function", "name": "f"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "robot", "content": "hi"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": 5}]}, "input[0].output"),
        ({"input": [{"type": ["message"], "role": "user", "content": "hi"}]}, "input[0]"),
        ({"input": [{"type": {}, "role": "user", "content": "hi"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": "hi", "id": ["a"]}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": 5}]}, "input[0].id"),
        (user({"type": ["input_text"], "text": "hi"}), "input[0].content[0]"),
        ({"input": [{"role": "assistant", "content": [{"type": {}, "text": "hi"}]}]}, "input[0].content[0]"),
        (user({"type": "input_text"}), "input[0].content[0].text"),
        (user({"type": "input_video"}), "input[0].content[0]"),
        (user({"type": "input_image", "file_id": "f"}), "input[0].content[0]"),
        (user({"type": "input_image", "image_url": "http://10.0.0.1/a.png"}), "input[0].content[0].image_url"),
        (user({"type": "input_file", "file_url": "http://10.0.0.1/a"}), "input[0].content[0]"),
        (user({"type": "input_file", "file_data": "%"}), "input[0].content[0].file_data"),
        (
            user({"type": "input_file", "file_data": "data:application/pdf;base64,AAEC"}),
            "input[0].content[0].file_data",
        ),
        ({"input": [{"role": "system", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"truncation": "some"}, "truncation"),
        ({"include": ["nonsense"]}, "include"),
        ({"metadata": {"a": "x" * 513}}, "metadata[...]"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"tools": [{"type": "web_search"}, {"type": "mcp"}]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        ({"tools": [FUNCTION, {"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True, "store": False}, "store"),
    ],
    ids=str,
)
def test_the_wrong_field_is_named_and_nothing_is_sent(ask: AppClient, fields: dict[str, Any], param: str) -> None:
    is_error(ask("POST", "/v1/responses", {"model": "m", "input": "hi", **fields}), 400, "invalid_request", param)
    assert not ask.bus.sent


def test_hosted_tools_are_named_if_there_is_nothing_else(ask: AppClient) -> None:
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}, {"type": "file_search"}]
    answer = ask("POST", "/v1/responses", {"model": "m", "input": "hi", "tools": tools})
    assert "file_search, web_search are not served here" in answer.json["error"]["message"]


def test_an_unknown_previous_response_is_a_mistake_of_the_request(ask: AppClient) -> None:
    ask.reports[GetResponse] = Failure(Code.NOT_FOUND, "Response 'r' is not stored")
    answer = ask("POST", "/v1/responses", {"model": "m", "input": "hi", "previous_response_id": "r"})
    is_error(answer, 400, "invalid_request", "previous_response_id")
    is_error(ask("GET", "/v1/responses/r"), 404, "not_found")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=" + "0" * 5000 + "1", "limit"),
        ("order=up", "order"),
    ],
    ids=lambda value: value[:9],
)
def test_wrong_pages(ask: AppClient, query: str, param: str) -> None:
    is_error(ask("GET", f"/v1/responses/r/input_items?{query}"), 400, "invalid_request", param)
