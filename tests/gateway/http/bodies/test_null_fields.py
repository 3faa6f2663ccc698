"""A null field is absent, except where null is a value."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from gateway.api.anthropic.message_request import MessageRequest
from gateway.api.llamacpp.tokens import ApplyTemplateRequest
from gateway.api.mullama.generation.chat import ChatResource
from gateway.api.openai.completions import ChatRequest, TextRequest
from gateway.api.openai.embeddings import EmbeddingRequest
from gateway.api.responses.input.request import FunctionTool
from gateway.http.bodies import body_decoding, null_fields
from protocol.failures import LemonbusError

SCHEMA = {"enum": [None, "a"], "default": None, "const": None, "properties": {"a": {"default": None}}}
USER = {"role": "user", "content": "hi"}


class Leaf(msgspec.Struct, tag_field="type", tag="leaf"):
    text: str = ""


class Branch(msgspec.Struct, tag_field="type", tag="branch"):
    children: list[Leaf | Branch] | None = None
    data: dict[str, Any] | None = None


class Tree(msgspec.Struct):
    root: str | Branch | Leaf | None = None
    engine: Annotated[dict[str, Any], null_fields.NULL_IS_ABSENT] | None = None


def cleaned(body: dict[str, Any], cls: type) -> Any:
    return msgspec.json.decode(null_fields.without_null_fields(msgspec.json.encode(body), cls))


def test_null_fields_of_declared_objects_go_and_data_stays() -> None:
    tree = {
        "root": {
            "type": "branch",
            "unknown": None,
            "data": {"a": None},
            "children": [
                {"type": "leaf", "text": None},
                {"type": "branch", "data": None},
                {"type": "other", "a": None},
            ],
        },
        "engine": {"a": None, "b": [{"c": None, "d": [None]}]},
        "unknown": None,
    }
    assert cleaned(tree, Tree) == {
        "root": {
            "type": "branch",
            "data": {"a": None},
            "children": [{"type": "leaf"}, {"type": "branch"}, {"type": "other", "a": None}],
        },
        "engine": {"b": [{"d": [None]}]},
    }


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (ChatRequest, {"messages": [{"role": "assistant", "content": None}]}),
        (ChatRequest, {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
        (ChatRequest, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}),
        (ChatRequest, {"response_format": {"type": "json_object", "schema": SCHEMA}}),
        (ChatRequest, {"json_schema": SCHEMA}),
        (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": None}}}]}]}),
        (ChatRequest, {"chat_template_kwargs": {"a": None}}),
        (ChatRequest, {"logit_bias": {"15": None}}),
        (ApplyTemplateRequest, {"tools": [{"function": {"name": "f", "parameters": SCHEMA}}]}),
        (MessageRequest, {"tools": [{"name": "f", "input_schema": SCHEMA}]}),
        (MessageRequest, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"a": None}}]}]}),
        (MessageRequest, {"output_config": {"format": {"schema": SCHEMA}}}),
    ],
)  # fmt: skip
def test_null_is_a_value_in_schemas_and_other_data(cls: type, body: dict[str, Any]) -> None:
    assert cleaned(body, cls) == body


def test_a_tool_of_ollama_reaches_the_engine_without_null_fields() -> None:
    tool = {"type": None, "function": {"name": "f", "description": None, "parameters": SCHEMA}}
    body = ChatResource.read(msgspec.json.encode({"messages": [USER], "tools": [tool]}), "").body
    sent = msgspec.json.decode(msgspec.json.encode(body["tools"]))
    assert sent == [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def test_a_converted_object_has_no_null_fields() -> None:
    tool = body_decoding.convert({"name": "f", "strict": None, "parameters": SCHEMA}, FunctionTool, "tools[0]")
    assert tool == FunctionTool("f", SCHEMA)


def test_a_required_field_that_is_null_is_missing() -> None:
    with pytest.raises(LemonbusError, match="`input` is required"):
        body_decoding.decode(b'{"input": null}', EmbeddingRequest)


def test_what_has_no_null_keeps_its_bytes() -> None:
    data = b'{ "prompt" : "null", "x":1.10, "y":null, "z":18446744073709551616.0 }'
    request, passed_on = body_decoding.decode_for_passing_on(data, TextRequest)
    assert (request.prompt, passed_on) == ("null", b'{"prompt":"null","x":1.10,"z":18446744073709551616.0}')


@pytest.mark.parametrize(
    "data", [b'{"messages": [{"a": null}', b'{"messages": [{"role": null, "x": 1e999}]}', b"[null]"]
)
def test_what_cannot_be_read_stays_for_the_decoder_to_refuse(data: bytes) -> None:
    assert null_fields.without_null_fields(data, ChatRequest) == data
    with pytest.raises(LemonbusError):
        body_decoding.decode(data, ChatRequest)


def test_deep_nesting_is_bad_json() -> None:
    data = b'{"stream_options": ' + b'{"a":' * 201 + b"null" + b"}" * 201 + b"}"
    with pytest.raises(LemonbusError, match="nested too deeply"):
        body_decoding.decode(data, ChatRequest)
