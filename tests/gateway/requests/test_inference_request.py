"""How many tokens a request reserves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.requests.inference_request import DEFAULT_ANSWER_TOKENS, MAX_RESERVED_TOKENS, reserved_tokens
from protocol.models.sampling import TOKEN_LIMIT_FIELDS
from protocol.requests.text_limits import RequestFields

CHAT = "chat/completions"


def fields(**values: Any) -> RequestFields:
    return msgspec.json.decode(msgspec.json.encode(values), type=RequestFields)


@pytest.mark.parametrize(
    ("given", "answers", "tokens"),
    [
        ({"max_tokens": 7}, 1, 7),
        ({"max_completion_tokens": 7, "max_tokens": None}, 3, 21),
        ({"n_predict": 7, "max_tokens": 5}, 1, 7),
        ({"max_tokens": 0}, 1, DEFAULT_ANSWER_TOKENS),
        ({"n_predict": 0}, 1, DEFAULT_ANSWER_TOKENS),
        ({"n_predict": 7}, 1, DEFAULT_ANSWER_TOKENS),
        ({"n_predict": 7, "max_tokens": None}, 1, DEFAULT_ANSWER_TOKENS),
        ({"n_predict": -1, "max_tokens": 5}, 1, DEFAULT_ANSWER_TOKENS),
        ({"n_predict": -1}, 1, DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": "7"}, 1, DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": True}, 1, DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": 9007199254740993}, 4, MAX_RESERVED_TOKENS),
        ({}, 5, 5 * DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": 7}, 0, 0),
    ],
)
def test_what_its_answers_may_have(given: dict[str, Any], answers: int, tokens: int) -> None:
    assert reserved_tokens(CHAT, answers, fields(**given)) == tokens


@pytest.mark.parametrize("name", TOKEN_LIMIT_FIELDS)
def test_a_number_that_is_too_large_does_not_limit(name: str) -> None:
    too_large: RequestFields = {name: msgspec.Raw(b"1e999")}
    for endpoint in (CHAT, "completion"):
        assert reserved_tokens(endpoint, 2, too_large) == 2 * DEFAULT_ANSWER_TOKENS


@pytest.mark.parametrize(
    ("endpoint", "given", "tokens"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x" * 400}]}, 107 + DEFAULT_ANSWER_TOKENS),
        ("completions", {"prompt": ["x" * 37] * 10, "max_tokens": 2}, 101 + 10 * 2),
        ("infill", {"prompt": "x" * 38, "n_predict": 3}, 10 + 10 * 3),
        ("completion", {"prompt": "x" * 38, "n_predict": 0}, 10),
        ("completion", {"prompt": "x" * 38, "n_predict": -1}, 10 + 10 * DEFAULT_ANSWER_TOKENS),
        ("completions", {"prompt": "x" * 38, "n_predict": 0}, 10 + 10 * DEFAULT_ANSWER_TOKENS),
        ("embeddings", {"input": "x" * 38}, 10),
        ("rerank", {"query": "x" * 38, "documents": ["x" * 38]}, 21),
        ("images/generations", {"prompt": "x" * 38}, 0),
        ("audio/speech", {"input": "x" * 38}, 0),
    ],
)
def test_prompts_are_counted_by_their_bytes(endpoint: str, given: dict[str, Any], tokens: int) -> None:
    answers = 1 if endpoint == CHAT else 10
    assert reserved_tokens(endpoint, answers, fields(**given)) == tokens
