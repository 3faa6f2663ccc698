"""The stop sequence that ended an answer: it is read from llama-server's verbose finish chunk and written as ``stop_reason`` of the choice."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.workers.direct_engine import running_engine
from workers.backends.requests.generation_request import generation_request
from workers.stream.response_assembler import ResponseAssembler
from workers.stream.stop_reason import StopReasonTranslator

TEXT = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"say \\"__verbose\\":{"}}],"id":"c"}\n\n'
FINISH = (
    b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"id":"c",'
    b'"__verbose":{"prompt":"secret","stop_type":"word","stopping_word":"END"},"timings":{"cache_n":1}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def fed(data: bytes, size: int) -> bytes:
    translator = StopReasonTranslator()
    return b"".join(translator.feed(data[start : start + size]) for start in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_the_word_is_in_the_choice_and_the_prompt_is_gone(size: int) -> None:
    written = fed(TEXT + FINISH + DONE, size)
    assert written.startswith(TEXT)
    assert written.endswith(DONE)
    assert b"secret" not in written
    finish = json.loads(written.split(b"\n\n")[1].removeprefix(b"data: "))
    assert finish["choices"][0] == {"finish_reason": "stop", "index": 0, "delta": {}, "stop_reason": "END"}
    assert list(finish) == ["choices", "id", "timings"]


def test_no_word_is_null() -> None:
    assert b'"stop_reason":null' in fed(FINISH.replace(b'"END"', b'""'), 10_000)


def test_the_rest_after_the_last_event_waits() -> None:
    translator = StopReasonTranslator()
    assert translator.feed(TEXT + FINISH[:50]) == TEXT
    assert b'"stop_reason":"END"' in translator.feed(FINISH[50:])


@pytest.mark.parametrize("stream", [False, True])
def test_only_a_request_that_asks_for_it_is_verbose(stream: bool) -> None:
    plain: dict[str, Any] = {"messages": [], "max_tokens": 4, "stop": ["END"]}
    asked = generation_request(
        "chat/completions", msgspec.json.encode({**plain, "return_stop_reason": True}), stream, {}, {}
    )
    body = json.loads(asked.body)
    assert (asked.streamed, body["verbose"], "return_stop_reason" in body) == (True, True, False)
    assert asked.translate is not None
    for value in ({}, {"return_stop_reason": False}):
        unasked = generation_request("chat/completions", msgspec.json.encode({**plain, **value}), stream, {}, {})
        assert unasked.translate is None
        assert not {"verbose", "return_stop_reason"} & set(json.loads(unasked.body))


def test_the_engine_names_the_stop_sequence(tmp_path_factory: pytest.TempPathFactory) -> None:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "return_stop_reason": True}
    with running_engine("tiny-chat", str(tmp_path_factory.mktemp("cache"))) as (engine, backend):
        for stop, expected in (["story", "never"], "story"), (["never"], None):
            sent = backend.request("chat/completions", "", msgspec.json.encode({**request, "stop": stop}), stream=False)
            status, answer = engine.post(sent.path, sent.body)
            assert status == 200
            assert sent.translate is not None
            assembler = ResponseAssembler(chat=True)
            assembler.feed(sent.translate(answer))
            choice = json.loads(assembler.answer())["choices"][0]
            assert (choice["finish_reason"], choice.get("stop_reason")) == ("stop", expected)
