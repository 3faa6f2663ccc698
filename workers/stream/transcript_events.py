"""A transcript as OpenAI's server-sent events: one delta per segment, then the whole text. Pure.

After these, two parts are only for the worker: a chunk with the number of tokens, and the end marker of a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.wire.transcripts import Transcript, TranscriptSegment
from workers.stream.sse_filter import SseFilter
from workers.stream.sse_parser import EVENT_END, SseParser, payload_of

_COUNTS: Final = b'{"choices":[]'
"""The beginning of the chunk with the number of tokens."""
_transcript: Final = msgspec.json.Decoder(Transcript).decode


class TranscriptEvents:
    """Writes the events of one transcript, segment by segment."""

    def __init__(self) -> None:
        """Start without segments."""
        self._text = ""
        self._tokens = 0

    def segment(self, segment: TranscriptSegment) -> bytes:
        """Return the event of a segment; nothing if it has no text."""
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
    """Return all events of a whole transcript. A transcript without segments is one delta."""
    events = TranscriptEvents()
    segments = transcript.segments or [TranscriptSegment(text=transcript.text)]
    return b"".join(events.segment(segment) for segment in segments) + events.end()


def streamed(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a function that writes an engine's whole response as events.

    ``convert`` turns it into a :class:`Transcript`.
    """
    return lambda answer: all_events(_transcript(convert(answer)))


class TranscriptFilter(SseFilter):
    """Filters the events of this module: leaves out the worker's own part."""

    def __init__(self) -> None:
        """Begin a stream."""
        super().__init__(usage=False, progress=False)

    def _end(self) -> None:
        self.finished = True

    def _filter_chunk(self, event: bytes, payload: bytes) -> tuple[list[bytes], int, bool]:
        if payload.startswith(_COUNTS):
            return self._usage_chunk(event, payload)
        return [event], 1, False


class _EngineSegment(TranscriptSegment, kw_only=True):
    text: str


class _EngineEvent(msgspec.Struct):
    segment: _EngineSegment | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


class SegmentStreamTranslator:
    """Translates the stream of our whisper-server, which has one segment in each event."""

    def __init__(self) -> None:
        """Start at the beginning of a response."""
        self._events = TranscriptEvents()
        self._parser = SseParser()

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return the events that they complete. Raises ValueError for a broken one."""
        events = self._parser.feed(data).split(EVENT_END)
        return b"".join(self._translated(payload) for event in events if (payload := payload_of(event)))

    def _translated(self, payload: bytes) -> bytes:
        if payload == b"[DONE]":
            return self._events.end()
        try:
            event = msgspec.json.decode(payload, type=_EngineEvent)
        except DECODE_ERRORS as problem:
            raise ValueError(str(problem)) from problem
        if event.error:
            return b"data: " + payload + EVENT_END
        if event.segment is None:
            raise ValueError("the engine sent an event without a segment")
        return self._events.segment(event.segment)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + EVENT_END
