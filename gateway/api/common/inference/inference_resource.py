"""A route answered by an engine: the request becomes OpenAI's, and OpenAI's answer becomes the dialect's."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.inference.stream_writer import ResponseStream, StreamWriter
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding, body_errors
from gateway.http.request_context import request_context
from gateway.http.stream_headers import set_stream
from gateway.requests import answer_stream, late_answer
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.late_answer import AnswerFormat
from gateway.requests.request_session import RequestSession
from protocol.failures import invalid
from protocol.wire.form_data import FormPart

R = TypeVar("R")
UNCHANGED: Final = AnswerFormat(falcon.MEDIA_JSON, lambda answer: answer.body)
"""Return the engine's JSON unchanged."""


class TranslatedRequest(InferenceRequest, frozen=True, kw_only=True):
    """What a resource makes of a client's request: the :class:`InferenceRequest` to send, and how its answer is written.

    Everything below the resource knows only the former. ``label`` and ``stream`` are set when it is sent.
    """

    writer: StreamWriter | None = None
    """Writes a streamed answer, which ``body`` must then ask for; None for a whole answer."""
    answer: AnswerFormat = UNCHANGED
    """How a whole answer is written."""
    complete: Callable[[RequestSession, answer_stream.Environ, InferenceRequest], WholeAnswer] = answer_stream.complete
    """Runs the request for a whole answer."""
    before_end: Callable[[], None] | None = None
    """Called when the generation of a streamed answer has ended; the end of the answer waits for it."""
    takes_long: bool = False
    """Whether the answer may take minutes, so that its headers are sent in advance."""


def answer_inference(
    session: SupervisorSession, req: falcon.Request, resp: falcon.Response, translated: TranslatedRequest
) -> None:
    """Ask the engine, and write its answer to ``resp``, streamed or whole."""
    context = request_context(req.env)
    context.model = translated.model
    writer = translated.writer
    request = msgspec.structs.replace(translated, label=context.label, stream=writer is not None)
    if writer is not None:
        answer = answer_stream.stream(session, req.env, request, patient=not writer.has_ping)
        set_stream(resp, ResponseStream(answer, context, writer, translated.before_end), writer.media_type)
        return
    if translated.takes_long:
        late_answer.respond(session, req, resp, request, translated.answer)
        return
    whole = translated.complete(session, req.env, request)
    context.model = whole.model
    resp.data = translated.answer.write(whole)
    resp.content_type = translated.answer.content_type


class InferenceResource(abc.ABC, Generic[R]):
    """A falcon resource for POST. A subclass names the type of its requests and translates them; this class answers them.

    ``request_type``: the type of the requests, also in the OpenAPI document.
    """

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}
    request_type: ClassVar[Any]

    def __init__(self, session: SupervisorSession) -> None:
        """Ask engines through ``session``."""
        self._session = session

    @property
    def body_limit(self) -> int:
        """The largest body to read, in bytes."""
        return self._session.settings.body_limit

    def read(self, req: falcon.Request) -> tuple[R, bytes]:
        """Return the request and the body to pass on; raises ``LemonbusError`` for a wrong one."""
        return body_decoding.read_object(req, self.body_limit, self.request_type)

    @abc.abstractmethod
    def translate(self, req: falcon.Request, request: R, data: bytes) -> TranslatedRequest:
        """Check a request, and return what to ask; raises ``LemonbusError`` (``invalid_request``) for a wrong one."""

    def translated(self, req: falcon.Request) -> TranslatedRequest:
        """Return what to ask for a request; raises ``LemonbusError`` for a wrong one."""
        request, data = self.read(req)
        try:
            return self.translate(req, request, data)
        except msgspec.DecodeError as problem:
            # Fields that the type of the request does not declare are decoded only here, such as one with 1e400.
            what, _, _ = str(problem).partition(" - at ")
            raise invalid(f"the body cannot be read: {body_errors.describe_type_error(what)}") from None

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        self._session.admission.admit_inference()  # before the body is read
        answer_inference(self._session, req, resp, self.translated(req))


class FormResource(InferenceResource[list[FormPart]]):
    """The same for a form with files."""

    request_type = list[FormPart]

    def read(self, req: falcon.Request) -> tuple[list[FormPart], bytes]:
        """Return the parts of the form; raises ``LemonbusError`` for a wrong one."""
        return body_decoding.read_form(req, self.body_limit), b""
