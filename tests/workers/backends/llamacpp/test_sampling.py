"""Sampling options of a request: its own values, otherwise the defaults that were set, otherwise the engine's."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol.failures import Code, LemonbusError
from workers.backends.llamacpp.backend import DESCRIPTOR
from workers.backends.requests.generation_request import generation_request

CHAT = "chat/completions"
TEXT = "completions"


def sent(endpoint: str, body: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """What the engine is asked."""
    request = generation_request(endpoint, msgspec.json.encode(body), True, defaults, DESCRIPTOR.sampling)
    return dict(json.loads(request.body))


@pytest.mark.parametrize(
    ("body", "defaults", "asked"),
    [
        ({}, {"temperature": 0.2, "top_p": 0.5, "top_k": 7}, {"temperature": 0.2, "top_p": 0.5, "top_k": 7}),
        ({"temperature": 1.5}, {"temperature": 0.2, "top_k": 7}, {"temperature": 1.5, "top_k": 7}),
        ({"temperature": None, "top_k": 0}, {"temperature": 0.2, "top_k": 7}, {"temperature": 0.2, "top_k": 0}),
        # limits, whatever they are called
        ({}, {"max_length": 9}, {"max_tokens": 9}),
        ({"max_tokens": 3}, {"max_length": 9}, {"max_tokens": 3}),
        ({"max_completion_tokens": 3}, {"max_length": 9}, {"max_completion_tokens": 3}),
        ({"max_tokens": -1}, {"max_length": 9}, {"max_tokens": -1}),
        ({"max_tokens": None}, {"max_length": 9}, {"max_tokens": 9}),
        ({"max_length": 4}, {"max_length": 9}, {"max_tokens": 4}),
        ({"max_length": 4}, {}, {"max_tokens": 4}),
        ({"max_length": 4, "max_tokens": 5}, {}, {"max_tokens": 5}),
        # greedy
        ({}, {"do_sample": False}, {"temperature": 0}),
        ({}, {"do_sample": False, "temperature": 0.9}, {"temperature": 0}),
        ({"temperature": 0.8}, {"do_sample": False}, {"temperature": 0.8}),
        ({"do_sample": False, "temperature": 0.8}, {}, {"temperature": 0}),
        ({"do_sample": True}, {"do_sample": False}, {}),
        ({"do_sample": True}, {"do_sample": False, "temperature": 0.9}, {"temperature": 0.9}),
        ({"do_sample": None}, {"do_sample": False}, {"temperature": 0}),
        # the defaults of the request's API
        ({"sampling_defaults": {"max_length": 512, "top_k": 40}}, {}, {"max_tokens": 512, "top_k": 40}),
        ({"sampling_defaults": {"max_length": 512, "top_k": 40}}, {"top_k": 7}, {"max_tokens": 512, "top_k": 7}),
        (
            {"sampling_defaults": {"max_length": 512, "top_k": 40}, "max_tokens": 3, "top_k": 0},
            {"top_k": 7},
            {"max_tokens": 3, "top_k": 0},
        ),
        ({"sampling_defaults": {"temperature": 0.7}}, {"do_sample": False}, {"temperature": 0}),
        ({"sampling_defaults": {"temperature": None}}, {"temperature": 0.2}, {"temperature": 0.2}),
        # what llama.cpp does not know
        ({"min_length": 3}, {"min_length": 5}, {}),
        # the example of the preview
        (
            {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_length": 0, "max_length": 8, "do_sample": False},
            {},
            {"temperature": 0, "top_p": 0.95, "top_k": 40, "max_tokens": 8},
        ),
    ],
)
@pytest.mark.parametrize("endpoint", [CHAT, TEXT])
def test_the_requests_own_values_come_before_those_that_were_set(
    endpoint: str, body: dict[str, Any], defaults: dict[str, Any], asked: dict[str, Any]
) -> None:
    ours = {"stream": True, "stream_options": {"include_usage": True}}
    nulls = {name: None for name, value in body.items() if value is None and name != "do_sample"}
    limit = {} if endpoint == CHAT or "max_completion_tokens" in asked else {"max_tokens": 2048}
    assert sent(endpoint, body, defaults) == {**nulls, **limit, **asked, **ours}


def test_without_anything_set_a_brief_request_passes_as_it_came() -> None:
    body = b'{ "prompt": "x",  "max_tokens": 5 }'
    assert generation_request(TEXT, body, False, {}, DESCRIPTOR.sampling).body is body


def test_a_limit_that_was_set_makes_a_request_brief() -> None:
    request = generation_request(TEXT, b'{"prompt":"x"}', False, {"max_length": 5}, DESCRIPTOR.sampling)
    assert not request.streamed
    assert json.loads(request.body) == {"prompt": "x", "max_tokens": 5}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"max_length":"x"}', "max_length"),
        (b'{"max_length":0}', "max_length"),
        (b'{"do_sample":"no"}', "do_sample"),
        (b'{"min_length":-1}', "min_length"),
        (b'{"min_length":' + b"[" * 900 + b"]" * 900 + b"}", "min_length"),
    ],
)
def test_a_wrong_value_is_the_callers_error(body: bytes, param: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        generation_request(TEXT, body, False, {}, DESCRIPTOR.sampling)
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, param)


@pytest.mark.parametrize(
    ("stop", "asked"),
    [("", None), ([""], None), (["", "a"], ["a"]), ("a", "a"), ('"', '"'), (['"', "b"], ['"', "b"]), ([], [])],
)
def test_an_empty_stop_word_is_none(stop: str | list[str], asked: str | list[str] | None) -> None:
    for endpoint in (CHAT, TEXT):
        assert sent(endpoint, {"stop": stop}, {}).get("stop") == asked
    whole = generation_request(
        CHAT, msgspec.json.encode({"stop": stop, "max_tokens": 1}), False, {}, DESCRIPTOR.sampling
    )
    assert json.loads(whole.body).get("stop") == asked


@pytest.mark.parametrize(
    ("body", "defaults", "limit"),
    [
        ({}, {}, 2048),
        ({"max_tokens": None}, {"temperature": 0.2}, 2048),
        ({}, {"max_length": 9}, 9),
        ({"sampling_defaults": {"max_length": 512}}, {}, 512),
        ({"max_tokens": -1}, {}, -1),
        ({"max_length": 3000}, {}, 3000),
    ],
)
def test_a_text_completion_has_the_documents_limit_and_a_chat_has_none(
    body: dict[str, Any], defaults: dict[str, Any], limit: int
) -> None:
    assert sent(TEXT, {"prompt": "a", **body}, defaults)["max_tokens"] == limit
    if limit == 2048:
        assert sent(CHAT, body, defaults).get("max_tokens") is None
