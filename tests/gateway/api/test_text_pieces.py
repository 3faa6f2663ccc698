"""Writers have a fast path for pieces of text, which writes the same as the path for all chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.anthropic.message_events import MessageEventWriter
from gateway.api.common.inference.stream_writer import ChunkWriter
from gateway.api.mullama.generation.answers import AnswerClock, AnswerWriter, message_fields, text_fields
from gateway.api.responses.output.event_stream import ResponseEventWriter
from tests.gateway.api.responses.deterministic import NOW, builder

CLOCK = AnswerClock(lambda: 0.5, lambda: 1_767_323_045_000_600_999)
WRITERS: dict[str, Callable[[], ChunkWriter]] = {
    "responses": lambda: ResponseEventWriter(builder(stream=True), lambda: NOW),
    "anthropic": lambda: MessageEventWriter("m", 100),
    "generate": lambda: AnswerWriter(text_fields, CLOCK),
    "chat": lambda: AnswerWriter(message_fields, CLOCK),
}
CALL = {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}]}
DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, st.text(max_size=6)),
    st.builds(lambda text: {"reasoning_content": text}, st.text(max_size=6)),
    st.just({"role": "assistant", "content": None}),
)


def event(delta: Any, finish_reason: str | None = None) -> bytes:
    chunk = {"id": "chatcmpl-1", "model": "m", "choices": [{"delta": delta, "finish_reason": finish_reason}]}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def written(writer: ChunkWriter, blocks: list[bytes]) -> bytes:
    return b"".join([*map(writer.events, blocks), writer.end()])


@pytest.mark.parametrize("name", WRITERS)
@given(st.lists(st.lists(DELTAS, max_size=4), max_size=4), st.booleans())
def test_a_piece_of_text_is_written_like_any_chunk(name: str, groups: list[list[Any]], call: bool) -> None:
    blocks = [b"".join(map(event, group)) for group in groups]
    blocks += [event(CALL), event({}, "tool_calls")] if call else [event({}, "length")]
    short, long = WRITERS[name](), WRITERS[name]()
    long.text = lambda _text: b""  # type: ignore[method-assign]
    assert written(short, blocks) == written(long, blocks)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_has_the_short_way(name: str) -> None:
    writer = WRITERS[name]()
    writer.events(event({"content": "A"}))
    assert writer.text(" lemon")
