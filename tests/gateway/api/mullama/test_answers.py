"""Answers of engines → the exact bytes of ``generate`` and ``chat``, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.common.inference.stream_writer import StreamWriter
from gateway.api.mullama.generation.answers import (
    AnswerClock,
    AnswerShape,
    AnswerWriter,
    message_fields,
    text_fields,
    write_whole,
)
from gateway.requests.answer_stream import WholeAnswer
from protocol.failures import DECODE_ERRORS, Code, Failure, LemonbusError
from protocol.messages.events import Outcome
from tests.gateway.app_client import StreamedAnswer

CLOCK = AnswerClock(lambda: 0.5, lambda: 1_767_323_045_000_600_999)
HEAD = '"model":"m","created_at":"2026-01-02T03:04:05.000600Z"'
TIMINGS = {"prompt_n": 3, "prompt_ms": 100.5, "predicted_n": 2, "predicted_ms": 200.0}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
COST = (
    '"total_duration":500000000,"load_duration":199500000,"prompt_eval_count":3,"prompt_eval_duration":100500000,'
    '"eval_count":2,"eval_duration":200000000,"total_duration_ms":500,"prompt_tokens":3,"completion_tokens":2,'
    '"tokens_per_second":10.0'
)
LAST = {"model": "m", "choices": [], "usage": USAGE, "timings": TIMINGS}
EMPTY_MESSAGE = '"message":{"role":"assistant","content":""}'
PROBABILITY = '{"token":" a","logprob":-0.5,"bytes":[32,97],"top_logprobs":[]}'


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def text_chunk(text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]}


def call(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"index": index, "function": function, **({"id": call_id, "type": "function"} if call_id else {})}


def streamed(writer: StreamWriter, chunks: list[Any]) -> str:
    return b"".join([*map(writer.events, StreamedAnswer(chunks).pieces), writer.end()]).decode()


@pytest.mark.parametrize(
    ("shape", "chunks", "lines"),
    [
        (
            text_fields,
            [chunk(role="assistant", content=None), chunk(content="A"), chunk(content=" lemon"), chunk("stop"), LAST],
            [
                f'{{{HEAD},"response":"A","done":false}}',
                f'{{{HEAD},"response":" lemon","done":false}}',
                f'{{{HEAD},"response":"","done":true,"done_reason":"stop",{COST}}}',
            ],
        ),
        (
            text_fields,
            [text_chunk("A"), text_chunk('\n"é\\', "length"), LAST],
            [
                f'{{{HEAD},"response":"A","done":false}}',
                f'{{{HEAD},"response":"\\n\\"é\\\\","done":false}}',
                f'{{{HEAD},"response":"","done":true,"done_reason":"length",{COST}}}',
            ],
        ),
        (
            message_fields,
            [chunk(reasoning_content="Hm."), chunk(content="A"), chunk("stop"), LAST],
            [
                f'{{{HEAD},"message":{{"role":"assistant","content":"","thinking":"Hm."}},"done":false}}',
                f'{{{HEAD},"message":{{"role":"assistant","content":"A"}},"done":false}}',
                f'{{{HEAD},{EMPTY_MESSAGE},"done":true,"done_reason":"stop",{COST}}}',
            ],
        ),
        (
            text_fields,
            [chunk(reasoning_content="Hm."), chunk("stop"), LAST],
            [
                f'{{{HEAD},"response":"","thinking":"Hm.","done":false}}',
                f'{{{HEAD},"response":"","done":true,"done_reason":"stop",{COST}}}',
            ],
        ),
        (
            message_fields,
            [
                chunk(tool_calls=[call(0, "c1", "f", "")]),
                chunk(tool_calls=[call(0, None, None, '{"n":1000000')]),
                chunk(tool_calls=[call(0, None, None, "0000000000000000000}")]),
                chunk(tool_calls=[call(1, "c2", "g", "")]),
                chunk("tool_calls"),
                LAST,
            ],
            [
                (
                    f'{{{HEAD},"message":{{"role":"assistant","content":"","tool_calls":['
                    '{"id":"c1","function":{"index":0,"name":"f","arguments":{"n":10000000000000000000000000}}},'
                    '{"id":"c2","function":{"index":1,"name":"g","arguments":{}}}]},"done":false}'
                ),
                f'{{{HEAD},{EMPTY_MESSAGE},"done":true,"done_reason":"stop",{COST}}}',
            ],
        ),
        (  # a call in which the answer was cut off
            message_fields,
            [chunk(tool_calls=[call(0, "c1", "f", '{"n":1')]), chunk("length"), LAST],
            [f'{{{HEAD},{EMPTY_MESSAGE},"done":true,"done_reason":"length",{COST}}}'],
        ),
        (  # the same within lists that no reader accepts
            message_fields,
            [chunk(tool_calls=[call(0, "c1", "f", '{"n":' + "[" * 100_000)]), chunk("length"), LAST],
            [f'{{{HEAD},{EMPTY_MESSAGE},"done":true,"done_reason":"length",{COST}}}'],
        ),
        (
            text_fields,
            [
                {
                    "model": "m",
                    "choices": [{"delta": {"content": "A"}, "logprobs": {"content": [json.loads(PROBABILITY)]}}],
                },
                chunk("stop"),
                LAST,
            ],
            [
                f'{{{HEAD},"response":"A","done":false,"logprobs":[{PROBABILITY}]}}',
                f'{{{HEAD},"response":"","done":true,"done_reason":"stop",{COST}}}',
            ],
        ),
        (  # an engine that reports no times and no usage
            text_fields,
            [chunk(content="A"), chunk("stop")],
            [
                f'{{{HEAD},"response":"A","done":false}}',
                (
                    f'{{{HEAD},"response":"","done":true,"done_reason":"stop","total_duration":500000000,'
                    '"load_duration":500000000,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":0,"eval_duration":0,'
                    '"total_duration_ms":500,"prompt_tokens":0,"completion_tokens":0,"tokens_per_second":0.0}'
                ),
            ],
        ),
    ],
)
def test_a_stream(shape: AnswerShape, chunks: list[Any], lines: list[str]) -> None:
    assert streamed(AnswerWriter(shape, CLOCK), chunks) == "".join(f"{each}\n" for each in lines)


def test_a_stream_is_the_same_however_its_events_are_grouped() -> None:
    chunks = [chunk(content="A"), chunk(content=" lemon"), chunk("stop"), LAST]
    together = AnswerWriter(text_fields, CLOCK)
    whole = together.events(b"".join(StreamedAnswer(chunks).pieces)) + together.end()
    assert whole.decode() == streamed(AnswerWriter(text_fields, CLOCK), chunks)


def test_arguments_that_are_not_an_object_break_a_stream() -> None:
    writer = AnswerWriter(message_fields, CLOCK)
    pieces = StreamedAnswer([chunk(tool_calls=[call(0, "c1", "f", "[1]")]), chunk("tool_calls")]).pieces
    assert writer.events(pieces[0]) == b""
    with pytest.raises(DECODE_ERRORS):
        writer.events(pieces[1])


def test_an_error_within_a_stream() -> None:
    failure = Failure(Code.BACKEND_DIED, "the engine died", model="m", tokens_sent=2)
    assert AnswerWriter(text_fields, CLOCK).error(failure, "r1") == (
        b'{"error":"the engine died","code":"backend_died","request_id":"r1","model":"m","tokens_sent":2}\n'
    )


def whole(body: Any) -> WholeAnswer:
    return WholeAnswer(
        json.dumps(body, separators=(",", ":")).encode(), "registered", Outcome(prompt_tokens=3, output_tokens=2)
    )


@pytest.mark.parametrize(
    ("shape", "answer", "written"),
    [
        (
            text_fields,
            {
                "model": "m",
                "choices": [{"message": {"content": "A lemon"}, "finish_reason": "stop"}],
                "usage": USAGE,
                "timings": TIMINGS,
            },
            f'{{{HEAD},"response":"A lemon","done":true,"done_reason":"stop",{COST}}}',
        ),
        (
            text_fields,
            {
                "model": "m",
                "choices": [
                    {"text": "A", "finish_reason": "length", "logprobs": {"content": [json.loads(PROBABILITY)]}}
                ],
                "usage": USAGE,
                "timings": TIMINGS,
            },
            f'{{{HEAD},"response":"A","done":true,"done_reason":"length",{COST},"logprobs":[{PROBABILITY}]}}',
        ),
        (
            message_fields,
            {
                "model": "m",
                "choices": [
                    {
                        "message": {
                            "content": None,
                            "reasoning_content": "Hm.",
                            "tool_calls": [
                                {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}},
                                {"id": "c2", "function": {"name": "g", "arguments": ""}},
                            ],
                        },
                        "finish_reason": "tool_calls",
                    }
                ],
                "timings": TIMINGS,
            },
            (
                f'{{{HEAD},"message":{{"role":"assistant","content":"","thinking":"Hm.","tool_calls":['
                '{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":1}}},'
                f'{{"id":"c2","function":{{"index":1,"name":"g","arguments":{{}}}}}}]}},"done":true,"done_reason":"stop",{COST}}}'
            ),
        ),
    ],
)
def test_a_whole_answer(shape: AnswerShape, answer: Any, written: str) -> None:
    assert write_whole(whole(answer), shape, CLOCK).decode() == written


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": 5},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}}]},
        {"choices": [{"message": {"content": "A"}}], "timings": "late"},
    ],
)
def test_an_answer_that_cannot_be_read_is_the_engines_fault(answer: Any) -> None:
    with pytest.raises(LemonbusError) as raised:
        write_whole(whole(answer), message_fields, CLOCK)
    assert (raised.value.failure.code, raised.value.failure.model) == (Code.BACKEND_ERROR, "registered")
