"""Chunks in server-sent events: read together or one by one, they are the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import DECODE_ERRORS
from protocol.wire.openai_chunks import Chunk, payloads, read_chunk, read_chunks, text_of

TEXTS = st.text(max_size=8) | st.sampled_from(["\n\ndata:", "\n\n", "data: [DONE]", ",", '"}]}'])
CHUNKS = st.builds(
    lambda text, index: {"id": "c", "model": "m", "choices": [{"index": index, "delta": {"content": text}}]},
    TEXTS,
    st.integers(0, 2),
)
OTHER_EVENTS = st.sampled_from([b": a comment\n\n", b"data: [DONE]\n\n", b"data:\n\n", b"event: x\n\n"])


def event(chunk: Any, separator: bytes = b" ") -> bytes:
    return b"data:" + separator + msgspec.json.encode(chunk) + b"\n\n"


def one_by_one(events: bytes) -> list[Chunk]:
    return [read_chunk(payload) for payload in payloads(events)]


@given(st.lists(st.builds(event, CHUNKS, st.sampled_from([b" ", b""])) | OTHER_EVENTS, max_size=6))
def test_events_that_came_together_are_read_as_if_alone(events: list[bytes]) -> None:
    block = b"".join(events)
    try:
        expected = one_by_one(block)
    except DECODE_ERRORS:
        with pytest.raises(DECODE_ERRORS):
            list(read_chunks(block))
    else:
        assert list(read_chunks(block)) == expected


@pytest.mark.parametrize("broken", [b"data: {\n\n", b'data: {"choices": 1}\n\n', b"data: {}]\n\n"])
def test_one_broken_chunk_among_others_is_an_error(broken: bytes) -> None:
    good = event({"choices": [{"delta": {"content": "a"}}]})
    with pytest.raises(DECODE_ERRORS):
        list(read_chunks(good + broken + good))


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        ({"choices": [{"delta": {"content": " a"}}]}, " a"),
        ({"choices": [{"text": " a"}]}, " a"),
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, ""),
        ({"choices": []}, ""),
        ({"choices": [{"delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}, ""),
        ({"choices": [{"index": 1, "delta": {"content": "a"}}]}, ""),
        ({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}, ""),
        ({"choices": [{"delta": {"content": "a"}, "stop_reason": "x"}]}, ""),
        ({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": []}}]}, ""),
        ({"choices": [{"delta": {"content": "a", "reasoning_content": "b"}}]}, ""),
        ({"choices": [{"delta": {"content": "a", "tool_calls": [{"index": 0}]}}]}, ""),
        ({"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 1}}, ""),
        ({"choices": [{"delta": {"content": "a"}}], "timings": {"prompt_ms": 1}}, ""),
    ],
)
def test_only_a_chunk_that_does_nothing_else_is_a_piece_of_text(chunk: dict[str, Any], text: str) -> None:
    assert text_of(read_chunk(msgspec.json.encode(chunk))) == text
