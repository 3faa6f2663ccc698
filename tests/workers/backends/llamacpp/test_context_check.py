"""Texts that a context cannot take are refused before an engine tokenizes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.failures import Code, LemonbusError
from workers.backends.llamacpp.context_check import MAX_READ_BYTES, MAX_TOKEN_BYTES, check_context, check_read

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
    with pytest.raises(LemonbusError, match="the model can have no larger context"):
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
