"""Grammars, schemas and patterns that an engine could not read in time are refused."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import LemonbusError
from tests.protocol.requests.request_checks import check, response_format


@pytest.mark.parametrize(
    "body",
    [
        {"grammar": 'root ::= "a"{5,2}'},
        {"grammar": 'root ::= ("a" | "b"){ 5 , 2 }'},
        {"json_schema": {"type": "string", "pattern": "^a{5,2}$"}},
        {"json_schema": {"type": "string", "pattern": "^(a|b){5,2}$"}},
        {"json_schema": {"type": "array", "minItems": 10, "maxItems": 2}},
        response_format({"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}}),
        {"tools": [{"function": {"parameters": {"items": {"minItems": 1, "maxItems": 0}}}}]},
    ],
    ids=str,
)
def test_a_minimum_above_its_maximum_is_refused(body: dict[str, Any]) -> None:
    """llama-server never ends with it, because it treats the difference as an unsigned number."""
    with pytest.raises(LemonbusError, match=r"endless|larger than its"):
        check(body)


def test_grammars_of_llguidance_are_refused() -> None:
    """They have no limits here: a few `multipleOf` in one blocked an engine, and all requests with it, until it was ended."""
    with pytest.raises(LemonbusError, match="GBNF") as caught:
        check({"grammar": '%llguidance {}\nstart: "a"'})
    assert caught.value.failure.param == "grammar"
    check({"grammar": '# %llguidance\nroot ::= "a"'})


@pytest.mark.parametrize("kind", [2, 3, "2", None])
def test_triggers_that_are_patterns_are_refused(kind: object) -> None:
    with pytest.raises(LemonbusError, match="not patterns"):
        check({"grammar_triggers": [{"type": 1, "value": "a"}, {"type": kind, "value": "(a|aa)+$x"}]})
    check({"grammar_triggers": [{"type": 1, "value": "a"}, {"type": 0, "value": "b", "token": 1}]})


@pytest.mark.parametrize("pattern", ["^a{ 30000 }$", "^a{3,30000                              }$"])
def test_numbers_of_a_pattern_count_whatever_stands_beside_them(pattern: str) -> None:
    with pytest.raises(LemonbusError, match="repetitions"):
        check({"json_schema": {"pattern": pattern}})
    check({"json_schema": {"pattern": "^30000|[0-9]{3}$"}})


@pytest.mark.timeout(15)
def test_each_character_of_a_pattern_is_read_once() -> None:
    """Trying a number again from each of its digits took a minute, in which the gateway did nothing else."""
    check(response_format({"type": "string", "pattern": "^" + "1" * 16_000 + "$"}))
