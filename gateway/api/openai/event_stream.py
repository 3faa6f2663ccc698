"""Server-sent events to an OpenAI client: what comes from the house untouched, pings, and how it ends."""

from __future__ import annotations

import errno
from typing import Final

from gateway.http import error_responses
from gateway.http.request_context import RequestContext
from gateway.requests.inference import AnswerStream
from protocol.failures import Code, LemonbusError

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": still here\n\n"
CLIENT_LEFT_CODES: Final = frozenset({Code.CANCELLED, Code.CLIENT_TOO_SLOW})
"""After these there is nobody to write to."""


class OpenAIEventStream:
    """``resp.stream``: ends with ``[DONE]`` if and only if the generation really ended."""

    __slots__ = ("_answer", "_context", "_over")

    def __init__(self, answer: AnswerStream, context: RequestContext) -> None:
        """Write out ``answer``."""
        self._answer = answer
        self._context = context
        self._over = False

    def __iter__(self) -> OpenAIEventStream:
        return self

    def __next__(self) -> bytes:
        if self._over:
            raise StopIteration
        try:
            piece = next(self._answer)
        except StopIteration:
            return self._end(DONE)
        except LemonbusError as problem:
            failure = problem.failure
            self._context.failure = failure
            self._context.close_after()
            if failure.code in CLIENT_LEFT_CODES:
                raise ConnectionResetError(errno.ECONNRESET, failure.message) from None
            return self._end(b"data: " + error_responses.stream_error(failure, self._context.label) + b"\n\n")
        if not piece:
            return PING
        # The end mostly comes with the last token: one write.
        return self._end(piece + DONE) if self._answer.finished else piece

    def _end(self, last: bytes) -> bytes:
        self._over = self._context.last = True
        self._context.model = self._answer.model
        return last

    def close(self) -> None:
        """Stop the generation if it still runs. gunicorn calls it however the response ended."""
        self._context.model = self._answer.model
        self._answer.close()
