"""Requests with one part that is too large are refused, with the field, its size and the limit; ordinary large requests are accepted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.failures import LemonbusError
from protocol.requests.request_limits import fields_within_limits
from protocol.requests.text_limits import MAX_TEXT_BYTES
from tests.protocol.requests.request_checks import check, response_format
from tests.support.calls import count_calls


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def _ranges(count: int) -> dict[str, Any]:
    each = {"type": "integer", "minimum": -(10**16), "exclusiveMaximum": 10**17}
    return {"items": [each] * count}


REFERENCES: dict[str, Any] = {
    "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/x"}}] * 400,
    "$defs": {"x": {"enum": [*range(399), None]}},
}


def _object(properties: int, optional: int) -> dict[str, Any]:
    names = [f"p{number}" for number in range(properties)]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names[optional:]}


def _tools(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"function": {"name": f"f{number}", "parameters": each}} for number, each in enumerate(schemas)]}


def _all_of(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"allOf": [{"anyOf": list(choices)}, _object(300, 0)], "$defs": {"x": _object(200, 0)}}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2 * MAX_TEXT_BYTES}}


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"grammar": "root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000}, "grammar", "10000 levels of nesting"),
        ({"grammar": "root ::= " + "|".join(["a"] * 5_001)}, "grammar", "5000 alternatives"),
        ({"grammar": 'root ::= "a"{0,100000}'}, "grammar", "100000 repetitions"),
        ({"grammar": 'root ::= "a"{0,' + " " * 1_000 + "100000}"}, "grammar", "100000 repetitions"),
        ({"grammar": "root ::= " + " " * 65_536}, "grammar", "bytes of JSON"),
        (response_format({"enum": [f"v{i}" for i in range(10_000)]}), "response_format", "10000 alternatives"),
        ({"json_schema": {"anyOf": [{"type": "null"}] * 1_001}}, "json_schema", "1001 alternatives"),
        ({"json_schema": {"type": ["string", "null"] * 501}}, "json_schema", "1002 alternatives"),
        ({"json_schema": {"type": "string", "pattern": "a?b*" * 251}}, "json_schema", "502 optional parts"),
        ({"grammar": "root ::= " + "[0-9]* a? " * 251}, "grammar", "502 optional parts"),
        ({"messages": [{"role": "user", "content": "a"}] * 4_097}, "messages", "4097 entries"),
        ({"json_schema": _nested(100)}, "json_schema", "levels of nesting"),
        ({"json_schema": {"type": "string", "minLength": 10**9}}, "json_schema", "repetitions"),
        ({"json_schema": [{"type": "string", "maxLength": 9_999}] * 3}, "json_schema", "29997 repetitions"),
        ({"grammar": f'root ::= "{"a" * 60_000}"{{1999}}'}, "grammar", "119943998 characters in what it repeats"),
        ({"grammar": f"root ::= [{'a' * 60_000}] {{1,9}}"}, "grammar", "600020 characters in what it repeats"),
        (
            {"json_schema": {"type": "string", "pattern": f"^({'a' * 248}){{1999}}$"}},
            "json_schema",
            "495752 characters in the groups that its patterns repeat",
        ),
        ({"json_schema": {"type": "string", "pattern": "^((a{4000}){4000})$"}}, "json_schema", "in what it repeats"),
        ({"json_schema": {"const": "a" * 17_000}}, "json_schema", "17000 characters in one value"),
        ({"json_schema": {"enum": [["a" * 17_000]]}}, "json_schema", "17004 characters in one value"),
        ({"json_schema": {"type": "string", "pattern": "^a{0,99999}$"}}, "json_schema", "99999 repetitions"),
        ({"json_schema": {"type": "string", "pattern": "(" * 200 + ")" * 200}}, "json_schema", "levels of nesting"),
        ({"json_schema": [{"pattern": "a" * 5_000}] * 4}, "json_schema", "20000 characters in its patterns"),
        ({"json_schema": {"properties": {f"p{i}": {} for i in range(501)}}}, "json_schema", "501 properties"),
        (_tools(*[_object(500, 500)] * 3), "tools", "750000 pairs of optional properties"),
        (_tools(*[_object(70, 70)] * 128), "tools", "627200 pairs of optional properties"),
        (response_format({"items": [_object(500, 450)] * 3}), "response_format", "607500 pairs of optional properties"),
        ({"json_schema": _all_of(*[_object(300, 0)] * 2)}, "json_schema", "600 optional properties in one `allOf`"),
        ({"json_schema": _all_of(*[{"$ref": "#/$defs/x"}] * 4)}, "json_schema", "1200 optional properties in one"),
        ({"json_schema": {"items": [_all_of(_object(450, 0))] * 3}}, "json_schema", "607500 pairs of optional"),
        (
            {"json_schema": {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"$ref": "#/$defs/x"}}}},
            "json_schema",
            "endless continuations",
        ),
        ({"tools": [{"function": {"parameters": {"enum": list(range(5_000))}}}]}, "tools", "5000 alternatives"),
        (
            {"grammar": "root ::= " + " | ".join(['"a" x'] * 300) + "\nx ::= " + "|".join("b" * 300)},
            "grammar",
            "continuations",
        ),
        (response_format(_ranges(600)), "response_format", "21600 digits in its `minimum` and `maximum`"),
        ({"grammar": 'root ::= ((("a"{0,30}){0,30}){0,30})'}, "grammar", "continuations"),
        ({"json_schema": REFERENCES}, "json_schema", "16040. continuations"),
        (response_format(REFERENCES), "response_format", "16040. continuations"),
        ({"tools": [{"function": {"parameters": REFERENCES}}]}, "tools", "16040. continuations"),
        ({"chat_template_kwargs": {"a": "b" * 65_536}}, "chat_template_kwargs", "bytes of JSON"),
        ({"prompt": "a" * MAX_TEXT_BYTES}, "prompt", "bytes of text"),
        ({"prompt": [1_000] * (MAX_TEXT_BYTES // 5 + 1)}, "prompt", "bytes of text"),
        ({"input": ["a", "a" * MAX_TEXT_BYTES]}, "input", "bytes of text"),
        ({"content": [["a" * MAX_TEXT_BYTES]]}, "content", "bytes of text"),
        ({"content": "a" * 262_144, "with_pieces": True}, "content", "the limit is 262144"),
        ({"content": [1] * 200_000, "with_pieces": True}, "content", "the limit is 262144"),
        ({"tokens": [1_000] * (MAX_TEXT_BYTES // 5 + 1)}, "tokens", "bytes of text"),
        ({"input_extra": [{"text": "a" * 100_000}] * 50}, "input_extra", "bytes of text"),
        ({"messages": [{"role": "user", "content": "a" * 1_100_000}] * 4}, "messages", "bytes of text"),
        (
            {"messages": [{"content": [{"type": "text", "text": "a" * MAX_TEXT_BYTES}, PICTURE]}]},
            "messages",
            "bytes of text",
        ),
        ({"messages": [{"role": "user", "content": "a b" + "é" * 600_000}]}, "messages", "in a row"),
        ({"messages": [{"content": [{"type": "text", "text": "e\u0301" * 270_000}]}]}, "messages", "in a row"),
        ({"prompt": ["ok", " " * 540_000]}, "prompt", "in a row"),
        ({"prompt": "!" + "/\n" * 300_000}, "prompt", "in a row"),
        ({"prompt": "1½" * 270_000}, "prompt", "in a row"),
        ({"prompt": "a\x1c1/" * 140_000}, "prompt", "in a row"),
        ({"tools": [{"function": {"parameters": {"properties": {"a" * 540_000: {}}}}}]}, "tools", "in a row"),
        ({"input": "=" * 540_000}, "input", "in a row"),
        ({"tools": [{"function": {"description": "1" * 540_000}}]}, "tools", "in a row"),
        ({"prompt": ["a"] * 20_000}, "prompt", "20000 entries; the limit is 1024"),
        ({"input": ["a"] * 3_000}, "input", "3000 entries"),
        ({"documents": ["a"] * 3_000}, "documents", "3000 entries"),
        ({"content": ["a"] * 3_000}, "content", "3000 entries"),
        ({"stop": ["a"] * 300}, "stop", "300 entries"),
        ({"dry_sequence_breakers": ["a"] * 17}, "dry_sequence_breakers", "17 entries"),
        ({"dry_sequence_breakers": ["a" * 1_024]}, "dry_sequence_breakers", "1028 bytes"),
        ({"preserved_tokens": ["a"] * 257}, "preserved_tokens", "257 entries"),
        ({"samplers": "k" * 5_000}, "samplers", "5002 bytes"),
        ({"stop": ["a" * 65_536]}, "stop", "65540 bytes"),
        ({"lora": [{"id": 1, "scale": 1}] * 65}, "lora", "65 entries"),
        ({"n_probs": 2**20 + 1}, "n_probs", "is 1048577; the limit is 1048576"),
        ({"logprobs": 1e9}, "logprobs", "the limit is 1048576"),
        ({"repeat_last_n": 2**31 - 1}, "repeat_last_n", "is 2147483647; the limit is 1048576"),
        ({"logit_bias": {str(i): 1 for i in range(5_000)}}, "logit_bias", "5000 entries"),
    ],
)
def test_refused(body: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(LemonbusError, match=words) as caught:
        check(body)
    assert caught.value.failure.param == field
    assert f"`{field}`" in caught.value.failure.message
    assert "the limit is" in caught.value.failure.message


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"grammar": None, "tools": None, "stop": None, "prompt": "a"},
        response_format({"enum": [f"v{i}" for i in range(1_000)]}),
        response_format({"type": "object", "description": "a" * 100_000}),
        {"json_schema": _nested(40)},
        {"json_schema": _ranges(500)},
        {"json_schema": {"type": "string", "pattern": r"^([A-Za-z0-9+/]{4}){0,2000}\.[A-Za-z0-9_-]{1,10000}$"}},
        {"grammar": 'root ::= "((((" | [(|)]+ # {0,100000}\n' + "\n".join(f"r{i} ::= [0-9]{{1,9}}" for i in range(99))},
        {"tools": [{"function": {"parameters": {"type": "string", "maxLength": 524_288}}}]},
        _tools(*[_object(80, 60)] * 128),
        _tools(_object(500, 500), _object(500, 500)),
        _tools(*[_object(500, 0)] * 20),
        {
            "json_schema": {
                "allOf": [{"$ref": "#/$defs/x"}] * 9 + [_object(300, 300)],
                "$defs": {"x": _object(300, 300)},
            }
        },
        {"json_schema": _all_of(_object(100, 0), {"$ref": "#/$defs/x"})},
        {
            "json_schema": {
                "properties": {"properties": {"properties": {"required": {}}, "required": 7}},
                "required": [7],
            }
        },
        {"prompt": list(range(10_000))},
        {"prompt": "1,2\n" * 200_000},
        {"prompt": "世界。\n" * 200_000},
        {"prompt": "a" * 262_143 + " " + "a" * 262_143},
        {"messages": [{"content": [{"image_url": {"url": "data:image/png;base64," + "A" * 900_000}}]}]},
        {"content": "a" * 262_143, "with_pieces": False},
        {"content": "a" * 200_000, "with_pieces": True},
        {"input": ["a"] * 2_048},
        {"input": ["a" * 10_000] * 1_000},
        {"n_probs": 2**20, "n_predict": 1},  # a token within a character is looked for in the whole vocabulary
        {"n_probs": 1_000, "logprobs": True, "top_logprobs": None, "repeat_last_n": -1, "dry_penalty_last_n": "x"},
        {"samplers": "kfypmxt", "dry_sequence_breakers": ["\n", ":", '"', "*"], "lora": [{"id": 0, "scale": 1.0}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]}] * 3},
        {"messages": [{"role": "user", "content": "("}] * 4_000},
    ],
)
def test_accepted(body: dict[str, Any]) -> None:
    check(body)


KEYS = {f"k{number}": 1 for number in range(5_000)}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (KEYS, ""),
        ({"anything": KEYS}, "anything"),
        ({"messages": [{"role": "user", "content": [{"type": "text", **KEYS}]}]}, "messages"),
        ({"tools": [{"function": {"parameters": {"$defs": KEYS}}}]}, "tools"),
    ],
    ids=["request", "field", "messages", "tools"],
)
def test_objects_with_too_many_keys_are_refused(body: dict[str, Any], field: str) -> None:
    """llama-server searches all former keys for each key: 240,000 took it minutes, even after the client had left."""
    with pytest.raises(LemonbusError, match=r"has 500[01] .*; the limit is 4096") as caught:
        check(body)
    assert caught.value.failure.param == field
    check({"messages": [{"role": "user", "content": "a: b" * 10_000}], "metadata": {"a": [{"b": 1}] * 5_000}})


@pytest.mark.parametrize("name", ["grammar", "json_schema", "tools", "chat_template_kwargs", "grammar_triggers"])
def test_a_number_that_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(LemonbusError, match="out of range") as caught:
        fields_within_limits(b'{"%b":[{"a":1e999}]}' % name.encode())
    assert caught.value.failure.param == name


def test_a_value_that_is_not_an_object_is_left_to_others() -> None:
    for body in (b"", b"[]", b"{broken", b"--boundary"):
        assert fields_within_limits(body) is None


@pytest.mark.parametrize("field", ["prompt", "input", "content", "tokens"])
def test_a_prompt_of_many_numbers_is_one_entry_that_is_not_looked_at_number_by_number(field: str) -> None:
    for numbers in ([1] * 100_000, [-1, 2.5, 10**30] * 30_000):
        assert count_calls(lambda numbers=numbers: check({field: numbers})) < 1_000
    with pytest.raises(LemonbusError, match="bytes of text"):
        check({field: [123_456] * (MAX_TEXT_BYTES // 7 + 1)})


@pytest.mark.parametrize("other", ['"a"', "[1]", "{}", "true", "false", "null"])
def test_a_list_with_another_value_among_its_numbers_is_not_one_prompt(other: str) -> None:
    body = b'{"prompt":[%b]}' % b",".join([b"1"] * 1_024 + [other.encode()])
    with pytest.raises(LemonbusError, match="1025 entries"):
        fields_within_limits(body)


def test_a_large_request_is_checked_in_steps() -> None:
    """In a single step it took 100 ms, in which the gateway did nothing else."""
    pauses = []
    picture = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]}]}
    for body in (picture, {"metadata": [{"a": {"b": 1}}] * 5_000}, {"prompt": ["a b " * 1_000] * 1_000}):
        pauses.append(0)

        def pause() -> None:
            pauses[-1] += 1

        fields_within_limits(msgspec.json.encode(body), pause=pause)
    assert min(pauses) >= 2, pauses


def test_each_level_of_a_large_value_is_not_searched_for_the_next_one() -> None:
    deep: object = "a b " * 10_000
    for _ in range(150):
        deep = {"a": deep}
    pauses = []
    fields_within_limits(msgspec.json.encode({"metadata": [deep, [{"a": 1}] * 5_000]}), pause=lambda: pauses.append(1))
    assert len(pauses) < 50
