"""Transcripts as OpenAI's events, from engines that stream segments and from engines that answer whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol.wire.transcripts import Transcript, TranscriptSegment
from workers.stream.transcript_events import SegmentStreamTranslator, TranscriptFilter, all_events, streamed

SEGMENTS = [
    TranscriptSegment(0, text=" Once upon", tokens=[1, 2]),
    TranscriptSegment(1, text="", tokens=[]),
    TranscriptSegment(2, text=" a time,\n", tokens=[3, 4, 5]),
    TranscriptSegment(3, text=" äöü 猫", tokens=[6]),
]
TEXTS = ["Once upon", " a time,", " äöü 猫"]
ENGINE = b"".join(b"data: " + msgspec.json.encode({"segment": segment}) + b"\n\n" for segment in SEGMENTS)


def shown(events: bytes) -> tuple[list[Any], TranscriptFilter]:
    """Return what a client gets for these events, as JSON, and the filter that removed the worker's own part."""
    filtered = TranscriptFilter()
    data = filtered.feed(events).data
    return [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n") if event], filtered


def check(events: bytes) -> None:
    sent_events, filtered = shown(events)
    assert sent_events[:-1] == [{"type": "transcript.text.delta", "delta": text} for text in TEXTS]
    assert sent_events[-1] == {"type": "transcript.text.done", "text": "".join(TEXTS)}
    assert filtered.finished
    assert [tail.usage.completion_tokens for tail in filtered.summaries() if tail.usage] == [6]


def test_a_whole_transcript() -> None:
    check(all_events(Transcript(text="Once upon", segments=SEGMENTS)))
    check(streamed(bytes)(msgspec.json.encode(Transcript(segments=SEGMENTS))))


def test_a_text_without_segments_is_one_delta() -> None:
    sent_events, _ = shown(all_events(Transcript(text="hello")))
    assert [event.get("delta") or event["text"] for event in sent_events] == ["hello", "hello"]


def test_nothing_heard() -> None:
    sent_events, filtered = shown(all_events(Transcript()))
    assert sent_events == [{"type": "transcript.text.done", "text": ""}]
    assert filtered.finished


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_stream_of_segments_in_pieces_of_any_size(size: int) -> None:
    whole = ENGINE + b"data: [DONE]\n\n"
    translator = SegmentStreamTranslator()
    check(b"".join(translator.feed(whole[at : at + size]) for at in range(0, len(whole), size)))


def test_a_stream_that_broke_off_has_no_end() -> None:
    _, filtered = shown(SegmentStreamTranslator().feed(ENGINE))
    assert not filtered.finished


def test_an_error_in_the_stream_is_passed_on() -> None:
    error = b'data: {"error":{"code":500,"message":"whisper.cpp failed"}}\n\n'
    _, filtered = shown(SegmentStreamTranslator().feed(ENGINE + error))
    assert filtered.error is not None
    assert b"whisper.cpp failed" in filtered.error


@pytest.mark.parametrize(
    "event", [b"data: nonsense", b'data: {"a":1}', b'data: {"segment":{}}', b'data: {"segment":{"text":7}}', b"<html>"]
)
def test_a_stream_that_makes_no_sense(event: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expected|missing|segment|data"):
        SegmentStreamTranslator().feed(event + b"\n\n")
