"""Requests for the log probabilities of only the chosen tokens, in the form that llama-server understands, and their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workers.backends.engine_request import EngineRequest
from workers.backends.llamacpp.requests.chosen_logprobs import request_for_one_alternative, with_chosen_logprobs
from workers.stream.stop_reason import StopReasonTranslator

CHAT, TEXT = "chat/completions", "completions"
TOKEN = (
    b'{"id":5,"token":"a \\"top_logprobs\\":[","bytes":[97],"logprob":-0.25,"top_logprobs":[{"id":5,"logprob":-0.25}]}'
)
EMPTIED = TOKEN.replace(b'[{"id":5,"logprob":-0.25}]', b"[]")
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[%b]}}],"id":"c"}\n\n'
PLAIN = b'data: {"choices":[{"index":0,"delta":{"content":"\\"top_logprobs\\":["}}],  "id":"c"}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        (CHAT, {"logprobs": True}, {"logprobs": True, "top_logprobs": 1}),
        (CHAT, {"logprobs": True, "top_logprobs": 0}, {"logprobs": True, "top_logprobs": 1}),
        (CHAT, {"logprobs": True, "top_logprobs": None}, {"logprobs": True, "top_logprobs": 1}),
        (CHAT, {"logprobs": True, "top_logprobs": 2}, None),
        (CHAT, {"logprobs": False}, None),
        (CHAT, {"messages": [{"content": '"logprobs"'}]}, None),
        (TEXT, {"logprobs": 0}, {"logprobs": 1}),
        (TEXT, {"logprobs": True}, {"logprobs": 1}),
        (TEXT, {"logprobs": 3}, None),
        (TEXT, {}, None),
    ],
)
def test_the_request(endpoint: str, fields: dict[str, Any], expected: dict[str, Any] | None) -> None:
    changed = request_for_one_alternative(endpoint, json.dumps(fields).encode())
    assert (changed and json.loads(changed)) == expected


def test_a_body_that_is_not_json_is_left_to_others() -> None:
    assert request_for_one_alternative(CHAT, b'{"logprobs": true') is None


@pytest.mark.parametrize("size", [1, 9, 10_000])
def test_a_stream(size: int) -> None:
    translate = with_chosen_logprobs(EngineRequest("POST", "/", streamed=True)).translate
    assert translate is not None
    data = CHUNK % TOKEN + PLAIN
    written = b"".join(translate(data[start : start + size]) for start in range(0, len(data), size))
    assert written == CHUNK % EMPTIED + PLAIN


def test_a_stream_that_also_tells_its_stop_sequence() -> None:
    translate = with_chosen_logprobs(
        EngineRequest("POST", "/", streamed=True, translate=StopReasonTranslator().feed)
    ).translate
    assert translate is not None
    finish = b'data: {"choices":[{"index":0,"finish_reason":"stop"}],"__verbose":{"stopping_word":"END"}}\n\n'
    written = translate(CHUNK % TOKEN + finish)
    assert written.startswith(CHUNK % EMPTIED)
    assert b'"stop_reason":"END"' in written


def test_a_whole_answer() -> None:
    translate = with_chosen_logprobs(EngineRequest("POST", "/")).translate
    assert translate is not None
    body = b'{"choices":[{"index":0,"message":{},"logprobs":{"content":[%b]}},{"index":1,"logprobs":null}],"id":"c"}'
    assert translate(body % TOKEN) == body % EMPTIED


def test_a_choice_that_a_stop_word_ended_at_once_has_an_empty_list() -> None:
    translate = with_chosen_logprobs(EngineRequest("POST", "/")).translate
    assert translate is not None
    answer = {"choices": [{"finish_reason": "stop", "index": 0, "message": {"content": ""}}]}
    (choice,) = json.loads(translate(json.dumps(answer).encode()))["choices"]
    assert choice["logprobs"] == {"content": []}


@pytest.mark.parametrize(
    "body", [b'{"choices":"none"}', b'{"choices":[7]}', b'{"choices":[{"logprobs":{"content":[7]}}]}']
)
def test_an_answer_of_another_shape_is_refused(body: bytes) -> None:
    translate = with_chosen_logprobs(EngineRequest("POST", "/")).translate
    assert translate is not None
    with pytest.raises(ValueError, match="object"):
        translate(body)
