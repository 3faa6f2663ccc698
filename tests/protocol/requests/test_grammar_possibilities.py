"""References and repetitions multiply the possible continuations of a text."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.requests.grammar_possibilities import ENDLESS, in_grammar, in_pattern, in_schema

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws # (((
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("grammar", "most"),
    [
        ('root ::= "a"', 1),
        ('root ::= "(" | [|?] | a # | b', 3),
        ('root ::= "a" x | "a" x "b" | "c"\nx ::= "1" | "2" | "3"', 7),
        ("root ::= a? b* c", 3),
        ('root ::= ((("a"{0,30}){0,30}){0,30})', 30**5),
        ('root ::= a{0,30}\na ::= b{0,30}\nb ::= "c"{0,30}', 30**5),
        ("root ::= (([a]{1,30}){1,30}){1,30}", 1),
        ('s ::= "a" s "b" | "a" s "c" | "a"', 3),
        ("\n".join(f"r{i} ::= r{i + 1}" for i in range(3_000)), ENDLESS),
        ("", 1),
        (") ? | ( {", 2),
    ],
)
def test_grammars(grammar: str, most: int) -> None:
    found = in_grammar(grammar)
    assert most <= found <= 1.2 * most + 4


def test_an_ordinary_grammar_has_few() -> None:
    assert in_grammar(JSON) < 500


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        (r"^(\d{1,3}\.){3}\d{1,3}$", 1, 10),
        (r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$", 61, 150),
        (r"^(((a{0,30}){0,30}){0,30})$", 30**5, 1.1 * 30**5),
        (r"^(?:a|b|c)$", 3, 4),
        ("a?" * 500, 500, 501),
    ],
)
def test_patterns(pattern: str, least: float, most: float) -> None:
    assert least <= in_pattern(pattern) <= most


def _arrays(count: int, items: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "array", "items": items, "minItems": number + 1} for number in range(count)]}


@pytest.mark.parametrize(
    ("schema", "least", "most"),
    [
        ({**_arrays(400, {"$ref": "#/$defs/x"}), "$defs": {"x": {"enum": list(range(400))}}}, 160_000, 161_000),
        ({"type": "object", "properties": {f"p{i}": {"enum": list(range(50))} for i in range(100)}}, 50, 60),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}}, 2, 10),
        ({"$ref": "elsewhere"}, 1, 2),
        (True, 1, 1),
        ({"properties": {"enum": {"type": ["string", "null"]}, "$ref": {"pattern": "a|b"}}}, 2, 4),
    ],
)
def test_schemas(schema: Any, least: int, most: int) -> None:
    assert least <= in_schema(schema) <= most


@pytest.mark.timeout(15)
def test_what_many_references_mean_is_looked_at_once() -> None:
    """Each spelling of a reference used to cause another search of everything that it means, which blocked the gateway for a minute."""
    target = {f"q{i}": {"properties": {f"p{j}": {} for j in range(400)}} for i in range(50)}
    references = {f"o{i}": {"properties": {f"p{j}": {"$ref": f"{i}-{j}#/x"} for j in range(400)}} for i in range(16)}
    assert in_schema({"x": {"properties": target}, "properties": references}) == 1
