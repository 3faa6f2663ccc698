"""Tools that llama-server would ignore: a choice of certain functions, and models whose chat template has no place for tools."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol.failures import LemonbusError
from workers.backends.engine_request import EngineRequest
from workers.backends.llamacpp.requests.offered_tools import OfferedTools, call_schema, offered_tools

CITY = {"type": "object", "properties": {"city": {"$ref": "#/$defs/Name"}}, "$defs": {"Name": {"type": "string"}}}
REQUIRED = {"tool_choice": "required"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


TOOLS = [tool("weather", description="Of a city.", parameters=CITY), tool("time")]


def offered(has_place: bool, **fields: Any) -> OfferedTools | None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, **fields}
    return offered_tools(json.dumps(body).encode(), has_place=has_place)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("time")]}}


@pytest.mark.parametrize(
    ("choice", "names", "word"), [(named("time"), ["time"], "required"), (ALLOWED, ["time"], "auto")]
)
def test_a_choice_of_certain_functions_offers_these_alone(choice: Any, names: list[str], word: str) -> None:
    found = offered(True, tool_choice=choice)
    assert found is not None
    sent = json.loads(found.body)
    assert ([each["function"]["name"] for each in sent["tools"]], sent["tool_choice"]) == (names, word)
    assert (found.forced, found.warning) == ((), "")


@pytest.mark.parametrize(
    "fields", [{}, {"tool_choice": None}, {"tool_choice": "auto"}, REQUIRED, {"tool_choice": "none"}]
)
def test_other_requests_are_llama_servers(fields: dict[str, Any]) -> None:
    assert offered(True, **fields) is None


def test_a_template_without_tools_causes_a_warning_if_the_model_may_choose() -> None:
    found = offered(False)
    assert found is not None
    assert "no place for tools" in found.warning
    assert json.loads(found.body)["tools"] == TOOLS
    assert found.applied_to(EngineRequest("POST", "/")).warning == found.warning
    assert offered(False, tool_choice="none") is None
    assert offered(False, tools=[]) is None


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, {"role": "user", "content": "Hi"}],
    ],
)
def test_a_template_without_tools_gets_a_demanded_call_by_its_schema(messages: list[Any]) -> None:
    form = {"type": "json_object"}
    found = offered(False, messages=messages, response_format=form, parallel_tool_calls=False, seed=1, **REQUIRED)
    assert found is not None
    assert found.forced == ("weather", "time")
    sent = json.loads(found.body)
    assert sent.keys() == {"messages", "json_schema", "seed"}
    first, *others = sent["messages"]
    assert others == messages[-1:]
    assert ("Be brief." in json.dumps(first)) == (len(messages) > 1)
    assert "Of a city." in json.dumps(first)


def test_references_of_a_moved_schema_are_adapted() -> None:
    schema = call_schema({"weather": CITY, "time": {"type": "object"}})
    assert schema["$defs"]["0"]["properties"]["city"] == {"$ref": "#/$defs/0/$defs/Name"}
    assert [each["properties"]["name"]["const"] for each in schema["anyOf"]] == ["weather", "time"]
    assert call_schema({"time": {}})["properties"]["arguments"] == {"$ref": "#/$defs/0"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": named("other")}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [], **REQUIRED}, "tool_choice"),
        ({"tools": [{"type": "function"}], "tool_choice": named("time")}, "tools"),
    ],
)
@pytest.mark.parametrize("has_place", [True, False])
def test_what_cannot_be_served_is_refused(has_place: bool, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(LemonbusError) as refused:
        offered(has_place, **fields)
    assert refused.value.failure.param == param


def test_a_grammar_of_the_clients_and_a_demanded_call_exclude_each_other() -> None:
    with pytest.raises(LemonbusError) as refused:
        offered(False, grammar='root ::= "a"', **REQUIRED)
    assert refused.value.failure.param == "grammar"


CALL = '{ "name": "weather",\n "arguments": {"city": "} \\" Paris"} }'
ARGUMENTS = '{"city": "} \\" Paris"}'


def translate(streamed: bool, data: bytes) -> bytes:
    found = offered(False, **REQUIRED)
    assert found is not None
    translated = found.applied_to(EngineRequest("POST", "/", streamed=streamed)).translate
    assert translated is not None
    return translated(data)


@pytest.mark.parametrize("size", [1, 3, 200])
def test_the_pieces_of_a_stream_become_pieces_of_a_call(size: int) -> None:
    deltas: list[Any] = [{"role": "assistant", "content": None}]
    deltas += [{"content": CALL[start : start + size]} for start in range(0, len(CALL), size)]
    chunks = [{"choices": [{"finish_reason": None, "index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"finish_reason": "stop", "index": 0, "delta": {}}]})
    chunks.append({"choices": [], "usage": {}})
    events = b"".join(b"data: %b\n\n" % msgspec.json.encode(each) for each in chunks)
    answer = translate(True, events + b"data: [DONE]\n\n")
    *found, usage, end = answer.strip().split(b"\n\n")
    assert (json.loads(usage[6:]), end) == (chunks[-1], b"data: [DONE]")
    choices = [json.loads(each[6:])["choices"][0] for each in found]
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert not any(choice["delta"].get("content") for choice in choices)
    parts = [choice["delta"].get("tool_calls", []) for choice in choices]
    assert all(len(each) < 2 for each in parts), "instructor reads the first alone"
    calls = [call for each in parts for call in each]
    first = calls[0]
    assert (first["function"]["name"], first["index"], first["type"]) == ("weather", 0, "function")
    assert "".join(call["function"]["arguments"] for call in calls) == ARGUMENTS


@pytest.mark.parametrize(("text", "reason"), [(CALL, "tool_calls"), (CALL[:-4], "length"), (CALL[:9], "length")])
def test_a_whole_answer_has_its_call(text: str, reason: str) -> None:
    given = "stop" if reason == "tool_calls" else reason
    body = {"choices": [{"finish_reason": given, "index": 0, "message": {"role": "assistant", "content": text}}]}
    (choice,) = json.loads(translate(False, json.dumps(body).encode()))["choices"]
    assert choice["finish_reason"] == reason
    calls = choice["message"].get("tool_calls", [])
    assert [call["function"] for call in calls] == (
        [{"name": "weather", "arguments": ARGUMENTS[: len(ARGUMENTS) - (text != CALL) * 2]}] if len(text) > 9 else []
    )
