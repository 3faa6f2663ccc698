"""A streamed answer whose writing fails: the client is told, and the exception is counted."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.api.common.inference.stream_writer import ResponseStream, StreamWriter
from gateway.internal_errors import INTERNAL_ERRORS
from protocol.failures import Code, Failure


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


def response_stream(answer: Any) -> ResponseStream:
    context: Any = SimpleNamespace(label="r.1", failure=None, last=False, model="", close_after=lambda: None)
    return ResponseStream(answer, context, _FailingWriter())


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
