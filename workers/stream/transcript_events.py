"""A transcript as OpenAI's server-sent events: one delta per segment, then the whole text. Pure.

What follows them is for the worker alone: a chunk with the number of tokens, and the end marker of a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from protocol.wire.decoding import DECODE_ERRORS
from protocol.wire.transcripts import Transcript, TranscriptSegment
from workers.stream.sse_filter import MAX_EVENT_BYTES

_END: Final = b"\n\n"
_transcript: Final = msgspec.json.Decoder(Transcript).decode


class TranscriptEvents:
    """Writes the events of one transcript, segment by segment."""

    def __init__(self) -> None:
        """Start without segments."""
        self._text = ""
        self._tokens = 0

    def segment(self, segment: TranscriptSegment) -> bytes:
        """Return the event of a segment; nothing for one without a text."""
        self._tokens += len(segment.tokens)
        text = segment.text.removesuffix("\n")
        delta = text if self._text else text.lstrip()
        if not delta:
            return b""
        self._text += delta
        return _event({"type": "transcript.text.delta", "delta": delta})

    def end(self) -> bytes:
        """Return the last events."""
        usage = {"prompt_tokens": 0, "completion_tokens": self._tokens}
        return (
            _event({"type": "transcript.text.done", "text": self._text})
            + _event({"choices": [], "usage": usage})
            + b"data: [DONE]\n\n"
        )


def all_events(transcript: Transcript) -> bytes:
    """Return all events of a transcript that came whole; a transcript without segments is one delta."""
    events = TranscriptEvents()
    segments = transcript.segments or [TranscriptSegment(text=transcript.text)]
    return b"".join(events.segment(segment) for segment in segments) + events.end()


def streamed(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a function that writes an engine's whole response as events; ``convert`` makes a :class:`Transcript` of it."""
    return lambda answer: all_events(_transcript(convert(answer)))


class _EngineEvent(msgspec.Struct):
    segment: TranscriptSegment | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


class SegmentStreamTranslator:
    """Translates the stream of our whisper-server, which has one segment in each event."""

    def __init__(self) -> None:
        """Start at the beginning of a response."""
        self._events = TranscriptEvents()
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the engine; return the events that they complete. Raises ValueError for a broken one."""
        *events, self._rest = (self._rest + data).split(_END)
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError("the engine sent an event without an end")
        return b"".join(self._translated(event.strip().removeprefix(b"data:").strip()) for event in events)

    def _translated(self, payload: bytes) -> bytes:
        if payload == b"[DONE]":
            return self._events.end()
        try:
            event = msgspec.json.decode(payload, type=_EngineEvent)
        except DECODE_ERRORS as problem:
            raise ValueError(str(problem)) from problem
        if event.error:
            return b"data: " + payload + _END
        return self._events.segment(event.segment) if event.segment is not None else b""


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + _END
