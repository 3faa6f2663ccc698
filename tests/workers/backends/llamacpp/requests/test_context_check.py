"""Texts that are too long for a context, and too many log probabilities, are refused before an engine works on them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.failures import Code, LemonbusError
from workers.backends.engine_request import EngineRequest
from workers.backends.llamacpp.requests.context_check import (
    MAX_READ_BYTES,
    MAX_TOKEN_BYTES,
    check_context,
    check_probabilities,
    check_read,
)

MOST = 100 * MAX_TOKEN_BYTES


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a" * MOST},
        {"prompt": ["a", "a" * MOST]},
        {"messages": [{"content": "a" * MOST}]},
        {"input": "a" * MOST},
        {"content": "a" * MOST},
        {"documents": ["a", {"text": "a" * MOST}]},
        {"tools": [{"description": "a" * (MOST // 2)}, {"description": "a" * (MOST // 2)}]},
    ],
    ids="+".join,
)
def test_refused(body: dict[str, Any]) -> None:
    with pytest.raises(
        LemonbusError, match="100 tokens can take: shorten it, or load the model with a larger"
    ) as caught:
        check_context(msgspec.json.encode(body), 100, 0)
    failure = caught.value.failure
    assert (failure.code, [failure.param]) == (Code.CONTEXT_EXCEEDED, list(body))
    with pytest.raises(LemonbusError, match="the model cannot have a larger context"):
        check_context(msgspec.json.encode(body), 100, 100)


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["a" * (MOST // 2)] * 9},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * MOST}}]}]},
    ],
    ids="+".join,
)
def test_left_to_the_engine(body: dict[str, Any]) -> None:
    check_context(msgspec.json.encode(body), 100, 100)


@pytest.mark.parametrize("context", [0, 100, 1_000_000])
def test_a_text_to_tokenize_may_be_longer_than_the_context(context: int) -> None:
    most = max(MAX_READ_BYTES, context * MAX_TOKEN_BYTES)
    check_read(msgspec.json.encode({"content": "a" * (most - 2)}), context)
    with pytest.raises(LemonbusError, match="send less of it at once") as caught:
        check_read(msgspec.json.encode({"content": "a" * most}), context)
    assert (caught.value.failure.code, caught.value.failure.param) == (Code.INVALID_REQUEST, "content")


def test_nothing_is_refused_while_the_context_is_not_known() -> None:
    check_context(msgspec.json.encode({"prompt": "a" * MOST}), 0, 0)


def _asking(body: dict[str, Any], choices: int = 1) -> EngineRequest:
    return EngineRequest("POST", "/completion", msgspec.json.encode(body), choices=choices)


@pytest.mark.parametrize(
    ("body", "choices", "context", "words"),
    [
        ({"n_probs": 10_000, "n_predict": 500}, 1, 8_192, "`n_probs` is 10000, for up to 500 tokens"),
        ({"n_probs": 10_000}, 1, 8_192, "up to 8192 tokens"),
        ({"n_probs": 10_000.0, "n_predict": -1}, 1, 8_192, "up to 8192 tokens"),
        ({"n_probs": 200, "n_predict": 99_999_999}, 1, 8_192, "up to 8192 tokens"),
        ({"n_probs": 21}, 1, 0, "an answer without a limit"),
        ({"n_probs": 1_000, "n_predict": 500}, 3, 8_192, "in each of 3 answers"),
        ({"logprobs": 10_000, "max_tokens": 500}, 1, 8_192, "`logprobs` is 10000"),
        ({"logprobs": True, "top_logprobs": 10_000, "max_tokens": 500}, 1, 8_192, "`top_logprobs` is 10000"),
    ],
)
def test_log_probabilities_for_more_tokens_than_memory_is_meant_for_are_refused(
    body: dict[str, Any], choices: int, context: int, words: str
) -> None:
    """For 500 tokens with 10,000 each, a worker used 1.3 GB, and neither it nor the engine freed them."""
    with pytest.raises(LemonbusError, match=words) as caught:
        check_probabilities(_asking(body, choices), context)
    failure = caught.value.failure
    assert failure.code is Code.INVALID_REQUEST
    assert "the limit is 1048576 log probabilities" in failure.message


@pytest.mark.parametrize(
    ("body", "context"),
    [
        ({"n_probs": 20}, 0),
        ({"logprobs": True, "top_logprobs": 20, "max_tokens": 99_999}, 131_072),
        ({"logprobs": 5}, 131_072),
        ({"n_probs": 100}, 8_192),
        ({"n_probs": 10_000, "n_predict": 100}, 8_192),
        ({"n_probs": 2**20, "n_predict": 1}, 0),
        ({"n_probs": 10_000, "n_predict": 99_999}, 100),
        ({"prompt": "n_probs", "n_probs": None, "logprobs": None}, 0),
        ({"n_probs": "many"}, 0),
    ],
)
def test_other_log_probabilities_are_left_to_the_engine(body: dict[str, Any], context: int) -> None:
    check_probabilities(_asking(body), context)
