"""Texts of a request: JSON in the texts of tools, and how many tokens all texts may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol.failures import LemonbusError
from protocol.requests.request_limits import fields_within_limits
from protocol.requests.text_limits import MAX_TEXT_BYTES, estimated_prompt_tokens

KEYS = {f"k{number}": 1 for number in range(5_000)}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2 * MAX_TEXT_BYTES}}


def _check(body: object) -> None:
    fields_within_limits(msgspec.json.encode(body))


def _called(arguments: object) -> dict[str, Any]:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": calls}]}


def _answered(content: object) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "tool_call_id": "1", "content": content}]}


DEEP = "[" * 120 + "]" * 120
WIDE = msgspec.json.encode(KEYS).decode()


@pytest.mark.parametrize("body", [_called, _answered, lambda text: _answered([{"type": "text", "text": text}])])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DEEP, "120 levels of nesting"),
        ('{"a":"\\"",  "b": ' + DEEP[:120], "121 levels of nesting"),
        (WIDE, "5000 keys"),
        (WIDE[:-5] + "x", "keys"),
    ],
)
def test_json_of_tools_that_is_too_deep_or_too_wide_is_refused(
    body: Callable[[str], dict[str, Any]], text: str, words: str
) -> None:
    """If a chat template expects objects, llama-server parses this JSON: 120 kB of brackets overflowed its stack."""
    with pytest.raises(LemonbusError, match=words) as caught:
        _check(body(text))
    assert caught.value.failure.param == "messages"


@pytest.mark.parametrize(
    "body",
    [
        _called(msgspec.json.encode({"text": DEEP * 100 + '"\\' + "a: " * 5_000}).decode()),
        _called(msgspec.json.encode([[{"a": {"b": []}}] * 3_000]).decode()),
        _answered("[1/200] Building\n" + "\x1b[32m" * 500 + "a: " * 5_000),
        _answered("[INFO] " + "[" * 500),
        {"messages": [{"role": "user", "content": DEEP}]},
    ],
    ids=["text", "many", "colours", "log", "user"],
)
def test_other_texts_of_calls_and_tools_are_accepted(body: dict[str, Any]) -> None:
    _check(body)


def test_a_bracket_that_json_has_as_an_escape_is_a_bracket() -> None:
    body = msgspec.json.encode(_answered(DEEP)).replace(b"[" * 120, b"\\u005b" * 120)
    with pytest.raises(LemonbusError, match="120 levels of nesting"):
        fields_within_limits(body)


def test_arguments_that_are_objects_have_the_same_limits() -> None:
    with pytest.raises(LemonbusError, match="120 levels of nesting"):
        _check(_called(msgspec.Raw(DEEP.encode())))


@pytest.mark.parametrize("other", [5, {"role": 5}, {"role": "user", "content": [{"type": "text", "text": 5}]}])
def test_a_message_that_cannot_be_read_hides_no_other(other: object) -> None:
    messages = _called(DEEP)["messages"]
    with pytest.raises(LemonbusError, match="120 levels of nesting"):
        _check({"messages": [other, *messages]})


@pytest.mark.parametrize("messages", ["caf\u00e9 \x01", "a " * 200_000, {"a": [[]] * 200}])
def test_messages_that_are_not_a_list_are_left_to_their_reader(messages: object) -> None:
    _check({"prompt": "x", "messages": messages})
    _check({"prompt": "x", "messages": msgspec.Raw(b'"caf\\u00e9"')})


@pytest.mark.parametrize("length", [1, 300_000])
def test_json_of_tools_in_a_long_chat_is_found(length: int) -> None:
    chat = {"messages": [{"role": "user", "content": "a b " * length}, *_called(DEEP)["messages"]]}
    with pytest.raises(LemonbusError, match="120 levels of nesting"):
        _check(chat)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "x" * 38, "max_tokens": 4_000_000}, 10),
        ({"prompt": ["x" * 18] * 100, "grammar": "x" * 400}, 526),
        ({"query": "x" * 38, "documents": ["x" * 38]}, 21),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, 107),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, 7),
        ([], 0),
    ],
)
def test_tokens_of_prompts_are_estimated_from_their_texts(body: object, tokens: int) -> None:
    assert estimated_prompt_tokens(msgspec.json.encode(body)) == tokens


def test_what_is_not_json_has_no_estimate() -> None:
    assert estimated_prompt_tokens(b"--boundary") == 0
