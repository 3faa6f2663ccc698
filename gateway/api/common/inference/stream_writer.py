"""A streamed answer in a dialect's own form: the writer that translates OpenAI's events, and the response body that uses it."""

from __future__ import annotations

import abc
import errno
from collections.abc import Callable
from typing import Final

from gateway.api.common import server_sent_events as sse
from gateway.http import errors
from gateway.http.request_context import RequestContext
from gateway.internal_errors import INTERNAL_ERRORS
from gateway.requests.answer_stream import AnswerStream
from protocol.failures import CLIENT_LEFT_CODES, DECODE_ERRORS, Code, Failure, LemonbusError
from protocol.messages.events import Outcome
from protocol.wire.openai_chunks import Chunk, read_chunks, text_of

DONE: Final = b"data: [DONE]\n\n"
"""The event that ends a stream of OpenAI's."""


class StreamWriter(abc.ABC):
    """Writes one streamed answer. Pure; a new one for each answer, so it may keep state between calls."""

    media_type: str

    @abc.abstractmethod
    def events(self, events: bytes) -> bytes:
        """Return the translation of one or more whole OpenAI events; empty bytes if there is nothing to write yet."""

    @abc.abstractmethod
    def end(self) -> bytes:
        """Return the end of an answer that was generated to its end."""

    def cost(self, outcome: Outcome) -> None:  # noqa: B027 - most forms have it in their events
        """Take the cost of an answer that was generated to its end, just before :meth:`end`."""

    @abc.abstractmethod
    def error(self, failure: Failure, label: str) -> bytes:
        """Return the end of a broken answer. ``failure.tokens_sent`` tokens were sent; ``label`` is the request id.

        Empty bytes if the form has no place for an error. The connection is then broken, because a client must not take
        a part for the whole.
        """

    def ping(self) -> bytes:
        """Return what keeps the connection alive while the engine is silent; empty bytes if the form has nothing for this."""
        return b""

    @property
    def has_ping(self) -> bool:
        """Whether :meth:`ping` has anything to write. It is not called for this: the first one may be the beginning of the stream."""
        return type(self).ping is not StreamWriter.ping


class EventStreamWriter(StreamWriter):
    """OpenAI's form: passes the engine's events on, and keeps no state."""

    media_type = sse.MEDIA_TYPE

    def events(self, events: bytes) -> bytes:
        """Return the events unchanged."""
        return events

    def end(self) -> bytes:
        """Return the end marker."""
        return DONE

    def error(self, failure: Failure, label: str) -> bytes:
        """Return an event with the error; no end marker follows it."""
        return sse.unnamed_event(errors.stream_error(failure, label))

    def ping(self) -> bytes:
        """Return a comment."""
        return sse.PING


class ByteWriter(StreamWriter):
    """Passes bytes on, such as sound: for the endpoints of ``BYTE_STREAMS``."""

    def __init__(self, media_type: str) -> None:
        """Write an answer of this media type."""
        self.media_type = media_type

    def events(self, events: bytes) -> bytes:
        """Return the bytes unchanged."""
        return events

    def end(self) -> bytes:
        """Return nothing: HTTP ends the answer."""
        return b""

    def error(self, failure: Failure, label: str) -> bytes:
        """Return nothing."""
        del failure, label
        return b""


class ChunkWriter(StreamWriter):
    """A writer that reads every chunk."""

    @abc.abstractmethod
    def chunk(self, chunk: Chunk) -> bytes:
        """Return the translation of one chunk; empty bytes if there is nothing to write yet."""

    def text(self, text: str) -> bytes:
        """Return the translation of one more piece of the text; empty bytes to get its :meth:`chunk` instead.

        Nearly every chunk is such a piece. A writer that has begun its text can write one in a fraction of the time.
        """
        del text
        return b""

    def events(self, events: bytes) -> bytes:
        """Return the translation of the chunks, in order."""
        return b"".join([self._written(chunk) for chunk in read_chunks(events)])

    def _written(self, chunk: Chunk) -> bytes:
        text = text_of(chunk)
        return (text and self.text(text)) or self.chunk(chunk)


class ResponseStream:
    """``resp.stream``: it has the writer's end if and only if the generation really ended."""

    __slots__ = ("_answer", "_before_end", "_context", "_ended", "_writer")

    def __init__(
        self,
        answer: AnswerStream,
        context: RequestContext,
        writer: StreamWriter,
        before_end: Callable[[], None] | None = None,
    ) -> None:
        """Stream ``answer``.

        ``before_end`` is called before the end of a complete answer, and may wait.
        """
        self._before_end = before_end
        self._answer = answer
        self._context = context
        self._writer = writer
        self._ended = False

    def __iter__(self) -> ResponseStream:
        return self

    def __next__(self) -> bytes:
        # An empty piece would end a chunked response.
        while not self._ended:
            piece = self._next_piece()
            if piece:
                return piece
        raise StopIteration

    def _next_piece(self) -> bytes:
        try:
            events = next(self._answer, None)
            if events is None:
                return self._complete(b"")
            if not events:
                return self._writer.ping()
            written = self._writer.events(events)
            # The end usually comes with the last token: one write.
            return self._complete(written) if self._answer.finished else written
        except LemonbusError as problem:
            return self._fail(problem.failure)
        except DECODE_ERRORS as problem:
            return self._fail(self._failure(Code.BACKEND_ERROR, "the engine's answer was not understood", str(problem)))
        except Exception as problem:  # noqa: BLE001 - an error of ours: the client must learn that the answer is not whole
            INTERNAL_ERRORS.log(problem, "a stream was not written", request_id=self._context.label)
            return self._fail(self._failure(Code.INTERNAL, "an internal error; the log has the details", str(problem)))

    def _failure(self, code: Code, message: str, detail: str) -> Failure:
        tokens = self._answer.tokens
        return Failure(code, message, model=self._answer.model, detail=detail, tokens_sent=tokens)

    def _fail(self, failure: Failure) -> bytes:
        self._context.failure = failure
        self._context.close_after()
        if failure.code in CLIENT_LEFT_CODES:
            raise ConnectionResetError(errno.ECONNRESET, failure.message)
        last = self._writer.error(failure, self._context.label)
        if not last:
            raise ConnectionResetError(errno.ECONNRESET, failure.message)
        return self._end(last)

    def _complete(self, written: bytes) -> bytes:
        if self._before_end is not None:
            self._before_end()
        self._writer.cost(self._answer.outcome)
        return self._end(written + self._writer.end())

    def _end(self, last: bytes) -> bytes:
        self._ended = self._context.last = True
        self._context.model = self._answer.model
        return last

    def close(self) -> None:
        """Stop the generation if it still runs. gunicorn calls this however the response ended."""
        self._context.model = self._answer.model
        self._answer.close()
