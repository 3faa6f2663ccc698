"""``POST responses``: streamed, whole, or in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.inference.inference_resource import TranslatedRequest, answer_inference
from gateway.api.responses.background import BackgroundRuns
from gateway.api.responses.background_stream import EventFeed
from gateway.api.responses.conversation import ResponseIds, read_conversation
from gateway.api.responses.input.chat_request import NAMES, chat_body, shortened
from gateway.api.responses.input.input_items import Item
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.output.event_stream import ResponseEventWriter
from gateway.api.responses.output.response_object import ResponseBuilder, whole_response
from gateway.api.responses.store_client import StoreClient
from gateway.api.responses.stored_form import stored_turn, with_events
from gateway.bus.session import SupervisorSession
from gateway.fetching.image_source import image_source
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from gateway.http.stream_headers import set_stream
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.late_answer import AnswerFormat
from gateway.requests.preparation import checked_fields
from gateway.requests.request_session import reserve
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import Code, LemonbusError

ENDPOINT: Final = "chat/completions"
"""The endpoint of the internal format."""
T = TypeVar("T")


def ask_truncating(body: dict[str, Any], auto: bool, ask: Callable[[dict[str, Any]], T]) -> T:
    """Ask.

    With ``auto`` truncation, ask again with less of the conversation while it does not fit the model's context.
    """
    while True:
        try:
            return ask(body)
        except LemonbusError as problem:
            too_long = auto and problem.failure.code is Code.CONTEXT_EXCEEDED
            shorter = shortened(body["messages"]) if too_long else None
            if shorter is None:
                raise
            body = {**body, "messages": shorter}


class ResponsesResource:
    """``POST responses``."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    def __init__(self, session: SupervisorSession, store: StoreClient, background: BackgroundRuns) -> None:
        """Ask engines through ``session``."""
        self._session = session
        self._store = store
        self._background = background

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Check the request, put the conversation before it, and answer."""
        request, _ = body_decoding.read_object(req, self._session.settings.body_limit, ResponseRequest)
        request.check()
        ids = ResponseIds()
        image = image_source(self._session, req.env, ENDPOINT, request.model)
        earlier, own = read_conversation(self._store, req.env, request, ids, image)
        body = chat_body(request, [*earlier, *own], image)
        builder = ResponseBuilder(request, ids, SERVER_CLOCK.seconds(), request.model or "")
        if request.background:
            self._run_in_background(req, resp, request, own, body, builder)
            return

        def answer(chat: dict[str, Any]) -> None:
            encoded = msgspec.json.encode(chat)
            answer_inference(self._session, req, resp, self._translated(req, request, own, encoded, builder))

        ask_truncating(body, request.truncation == "auto", answer)

    def _translated(
        self, req: falcon.Request, request: ResponseRequest, own: list[Item], body: bytes, builder: ResponseBuilder
    ) -> TranslatedRequest:
        def keep(response: dict[str, Any]) -> None:
            if request.wants_store:
                turn = stored_turn(own, response)
                builder.stored = self._store.keep(req.env, builder.id, turn, request.previous_response_id or "")

        def write(answer: WholeAnswer) -> bytes:
            response = whole_response(builder, answer)
            keep(response)
            return msgspec.json.encode({**response, "store": builder.stored})

        model = request.model or ""
        if not request.stream:
            return TranslatedRequest(ENDPOINT, model, body, answer=AnswerFormat(falcon.MEDIA_JSON, write), names=NAMES)
        writer = ResponseEventWriter(builder)
        return TranslatedRequest(
            ENDPOINT, model, body, writer=writer, before_end=lambda: keep(writer.response()), names=NAMES
        )

    def _run_in_background(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        request: ResponseRequest,
        own: list[Item],
        body: dict[str, Any],
        builder: ResponseBuilder,
    ) -> None:
        # Not in the background: by then, the response would be stored.
        data = msgspec.json.encode(body)
        _, tokens = checked_fields(req.env, ENDPOINT, 1, data, NAMES)
        context = request_context(req.env)
        context.model = request.model or ""
        reserve(self._session, req.env, ENDPOINT, context.model, tokens)
        begun = builder.response("in_progress")
        stream = bool(request.stream)
        settings = self._session.settings
        feed = None
        if stream:
            writer = ResponseEventWriter(builder)
            feed = EventFeed(writer, context, limit=settings.inbox_bytes, silence=settings.header_silence)

        def inference_request(chat: dict[str, Any]) -> InferenceRequest:
            encoded = msgspec.json.encode(chat)
            return InferenceRequest(ENDPOINT, request.model or "", encoded, context.label, stream=stream, names=NAMES)

        self._background.start(
            req.env,
            builder,
            stored_turn(own, with_events(begun) if stream else begun),
            request.previous_response_id or "",
            lambda ask: ask_truncating(body, request.truncation == "auto", lambda chat: ask(inference_request(chat))),
            feed,
        )
        if feed is not None:
            set_stream(resp, feed, feed.writer.media_type)
            return
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(begun)
