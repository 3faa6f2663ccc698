"""A whole answer that may take minutes.

Headers and whitespace are sent ahead, so that no client or proxy gives up on it.

A client that gives up repeats its request, and the engine begins the same recording again. Once the headers are sent,
the status is 200 whatever happens. An error is written into a JSON body; any other body is cut off, which HTTP tells
apart from a complete one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import falcon

from gateway.http import errors
from gateway.http.request_context import RequestContext, request_context
from gateway.http.stream_headers import set_stream
from gateway.requests.answer_stream import AnswerStream, WholeAnswer
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.request_session import RequestSession
from protocol.failures import CLIENT_LEFT_CODES, Failure, LemonbusError


class AnswerFormat(NamedTuple):
    """The form of an answer, and what may precede it without changing its meaning."""

    content_type: str
    write: Callable[[WholeAnswer], bytes]
    """Raises ``LemonbusError`` for an answer that cannot be written in this form."""
    padding: bytes = b" "
    opening: bytes = b""
    """The fixed beginning of the form, if nothing may precede it."""
    write_error: Callable[[Failure, str], bytes] = errors.late_error_body
    """Writes an error after headers that said 200, with the request id; for JSON."""

    @property
    def is_json(self) -> bool:
        """Whether an error can be written instead of the answer."""
        return self.content_type == falcon.MEDIA_JSON


class LateAnswer:
    """``resp.stream``: padding until the answer is there, then the answer or the error."""

    def __init__(self, answer: AnswerStream, context: RequestContext, form: AnswerFormat, silence: float) -> None:
        """Pad every ``silence`` seconds."""
        self._answer, self._context, self._form, self._silence = answer, context, form, silence
        self._begun = self._over = False

    def __iter__(self) -> LateAnswer:
        return self

    def __next__(self) -> bytes:
        if self._over:
            raise StopIteration
        if not self._begun:
            self._begun = True
            return self._form.opening or self._form.padding
        try:
            if not self._answer.ended(self._silence):
                return self._form.padding
            written = self._form.write(self._answer.whole())
        except LemonbusError as problem:
            return self._failed(problem.failure)
        return self._end(written.removeprefix(self._form.opening))

    def _failed(self, failure: Failure) -> bytes:
        self._context.failure = failure
        self._context.close_after()
        if failure.code in CLIENT_LEFT_CODES or not self._form.is_json:
            raise ConnectionResetError(errno.ECONNRESET, failure.message)
        return self._end(self._form.write_error(failure, self._context.label))

    def _end(self, last: bytes) -> bytes:
        self._over = self._context.last = True
        self._context.model = self._answer.model
        return last

    def close(self) -> None:
        """Stop the engine if it still works on it. gunicorn calls this however the response ended."""
        self._context.model = self._answer.model
        self._answer.close()


def respond(
    session: RequestSession,
    req: falcon.Request,
    resp: falcon.Response,
    request: InferenceRequest,
    form: AnswerFormat,
) -> None:
    """Ask, and write the answer to ``resp``: whole if it comes within ``settings.answer_silence`` seconds, else late.

    Raises ``LemonbusError`` for any failure until then, so that it gets its own HTTP status.
    """
    context = request_context(req.env)
    answer = AnswerStream(session, req.env, request)
    late = False
    try:
        late = not answer.ended(session.settings.answer_silence)
        if late:
            set_stream(resp, LateAnswer(answer, context, form, session.settings.header_silence), form.content_type)
        else:
            resp.content_type = form.content_type
            whole = answer.whole()
            context.model = whole.model
            resp.data = form.write(whole)
    finally:
        if not late:
            answer.close()
