"""A streamed answer whose writing fails: the client is told, and the exception is counted."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.api.common.inference.stream_writer import ByteWriter, ResponseStream, StreamWriter
from gateway.api.openai.speech import SpeechEventWriter
from gateway.internal_errors import INTERNAL_ERRORS
from protocol.failures import Code, Failure
from protocol.messages.events import Outcome


class _FailingWriter(StreamWriter):
    media_type = "text/event-stream"

    def events(self, events: bytes) -> bytes:
        raise RuntimeError("ours")

    def end(self) -> bytes:
        return b"end"

    def error(self, failure: Failure, label: str) -> bytes:
        return f"{failure.code.value} {label}".encode()


class _Answer:
    """One piece of an answer, or a failure."""

    tokens, model, finished = 1, "tiny", False

    def __init__(self, failure: Failure | None = None) -> None:
        self._failure = failure

    def __next__(self) -> bytes:
        if self._failure is not None:
            raise self._failure.raised()
        return b"data: {}\n\n"


def response_stream(answer: Any, writer: StreamWriter | None = None) -> ResponseStream:
    context: Any = SimpleNamespace(label="r.1", failure=None, last=False, model="", close_after=lambda: None)
    return ResponseStream(answer, context, writer or _FailingWriter())


def test_an_exception_of_a_writer_ends_the_stream_with_an_error_and_is_counted() -> None:
    before = INTERNAL_ERRORS.count
    assert list(response_stream(_Answer())) == [b"internal_error r.1"]
    assert INTERNAL_ERRORS.count == before + 1


def test_a_failure_of_the_engine_is_not_an_internal_error() -> None:
    before = INTERNAL_ERRORS.count
    assert list(response_stream(_Answer(Failure(Code.BACKEND_DIED, "killed")))) == [b"backend_died r.1"]
    with pytest.raises(ConnectionResetError) as reset:
        list(response_stream(_Answer(Failure(Code.CANCELLED, "left"))))
    assert reset.value.errno == errno.ECONNRESET
    assert INTERNAL_ERRORS.count == before


class _Sound(_Answer):
    """Some pieces of sound, then a failure, or the end."""

    outcome = Outcome(prompt_tokens=3, output_tokens=4)

    def __init__(self, *pieces: bytes, failure: Failure | None = None) -> None:
        super().__init__(failure)
        self._pieces = list(pieces)

    def __iter__(self) -> _Sound:
        return self

    def __next__(self) -> bytes:
        if self._pieces:
            return self._pieces.pop(0)
        if self._failure is not None:
            raise self._failure.raised()
        raise StopIteration


def test_bytes_end_with_the_answer() -> None:
    assert list(response_stream(_Sound(b"a", b"", b"b"), ByteWriter("audio/wav"))) == [b"a", b"b"]


def test_a_failure_within_bytes_breaks_the_connection() -> None:
    stream = response_stream(_Sound(b"a", failure=Failure(Code.BACKEND_DIED, "killed")), ByteWriter("audio/wav"))
    assert next(stream) == b"a"
    with pytest.raises(ConnectionResetError, match="killed"):
        next(stream)


def test_speech_in_events_ends_with_the_counts() -> None:
    delta, done = list(response_stream(_Sound(b"\xff\0"), SpeechEventWriter()))
    assert delta == b'data: {"type":"speech.audio.delta","audio":"/wA="}\n\n'
    usage = b'{"input_tokens":3,"output_tokens":4,"total_tokens":7}'
    assert done == b'data: {"type":"speech.audio.done","usage":%b}\n\n' % usage


def test_a_failure_within_speech_in_events_is_the_last_event() -> None:
    failing = _Sound(b"a", failure=Failure(Code.BACKEND_DIED, "killed"))
    *_, last = list(response_stream(failing, SpeechEventWriter()))
    assert b'"code":"backend_died"' in last
