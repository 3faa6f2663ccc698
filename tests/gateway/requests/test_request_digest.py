"""Which requests count as repetitions of a request that killed an engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.requests.request_digest import request_digest
from protocol.requests.request_limits import fields_within_limits

CHAT: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}


def digest_of(endpoint: str, body: bytes) -> str:
    return request_digest(endpoint, body, fields_within_limits(body))


def digest(**changes: Any) -> str:
    return digest_of("chat/completions", json.dumps(CHAT | changes).encode())


@pytest.mark.parametrize(
    "change", [{"stream": True}, {"user": "me"}, {"seed": 3}, {"max_tokens": 7}, {"model": "b"}], ids=str
)
def test_what_makes_no_difference_to_an_engine_does_not_count(change: dict[str, Any]) -> None:
    assert digest(**change) == digest()


def test_the_order_of_fields_does_not_count() -> None:
    turned = json.dumps(dict(reversed(CHAT.items()))).encode()
    assert digest_of("chat/completions", turned) == digest()


@pytest.mark.parametrize("change", [{"temperature": 1}, {"messages": []}, {"n": 2}, {"tools": []}], ids=str)
def test_all_else_does(change: dict[str, Any]) -> None:
    assert digest(**change) != digest()
    assert digest_of("completions", json.dumps(CHAT).encode()) != digest()


SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}


@pytest.mark.parametrize(
    "grammar", [{"grammar": 'root ::= "a"'}, {"json_schema": {}}, {"response_format": SCHEMA}], ids=str
)
def test_texts_beside_a_grammar_do_not_count(grammar: dict[str, Any]) -> None:
    other = [{"role": "user", "content": "something else"}]
    assert digest(**grammar, messages=other) == digest(**grammar) != digest()


@pytest.mark.parametrize(
    "nothing", [{"grammar": None}, {"grammar": ""}, {"response_format": {"type": "text"}}], ids=str
)
def test_texts_count_where_there_is_no_grammar(nothing: dict[str, Any]) -> None:
    assert digest(**nothing, messages=[]) != digest(**nothing)


def test_long_texts_differ_by_their_ends_and_their_length() -> None:
    texts = ["x" * 200_000, "x" * 200_001, "y" + "x" * 199_999, "x" * 199_999 + "y"]
    assert len({digest(messages=[{"role": "user", "content": text}]) for text in texts}) == len(texts)


@pytest.mark.parametrize("body", [b"", b"--boundary", b"[]", b"{", b"\xff"])
def test_what_is_not_a_json_object_is_known_by_its_bytes(body: bytes) -> None:
    assert digest_of("images/edits", body) == digest_of("images/edits", body)
    assert digest_of("images/edits", body) != digest_of("images/edits", body + b"x")
