"""What ``generate`` and ``chat`` share: the request on the bus, whole and streamed answers, ``keep_alive``."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common import ndjson, ollama_loading
from gateway.api.common.inference.inference_resource import TranslatedRequest, answer_inference
from gateway.api.common.inference.thinking import no_thinking
from gateway.api.common.ollama_clients import is_ollama_client
from gateway.api.mullama.generation.answers import AnswerClock, AnswerPart, AnswerWriter, model_state_line, write_whole
from gateway.api.mullama.generation.sampling_fields import ANY_OBJECT, GenerationFields, json_schema, sampling_fields
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of, request_context
from gateway.requests.late_answer import AnswerFormat
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import invalid


class Generation(NamedTuple):
    """A request as read: its fields, and the engine's endpoint and request in OpenAI's form.

    Without an endpoint there is nothing to generate.
    """

    fields: GenerationFields
    endpoint: str
    body: dict[str, Any]
    empty: bool = False
    """Whether the prompt or the messages are present but empty."""

    def bus_body(self) -> bytes:
        """Return the body that goes on the bus."""
        body = dict(self.body)
        if self.fields.model:
            body["model"] = self.fields.model
        if self.fields.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return msgspec.json.encode(body)


def chat_options(request: GenerationFields) -> dict[str, Any]:
    """Return a chat in OpenAI's form without its messages and tools."""
    body = sampling_fields(request)
    schema = json_schema(request)
    if schema is ANY_OBJECT:
        body["response_format"] = {"type": "json_object"}
    elif schema is not None:
        wanted = {"name": "answer", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    if request.think:
        # The names that chat templates know.
        effort = {"reasoning_effort": request.think} if isinstance(request.think, str) else {}
        body["chat_template_kwargs"] = {"enable_thinking": True, **effort}
    elif request.think is not None:
        body |= no_thinking()
    if request.logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs or 1}
    return body


class GenerationResource(abc.ABC):
    """A falcon resource for POST. A subclass reads requests and shapes answers."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    counted_as: ClassVar[str]
    """The endpoint of the internal format that the metrics count, whichever one the engine is asked for."""
    input_field: ClassVar[str]
    """The field without which nothing is generated."""
    names: ClassVar[Mapping[str, str]] = {"response_format": "format"}
    """Field of a chat in OpenAI's form → the request's field that it is made of, where they differ."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask engines and the supervisor through ``session``."""
        self._session = session

    @staticmethod
    @abc.abstractmethod
    def shape(part: AnswerPart) -> dict[str, Any]:
        """Return the fields of a line with what the model wrote."""

    @staticmethod
    @abc.abstractmethod
    def read(data: bytes, client: str) -> Generation:
        """Return the meaning of a request's JSON; raises ``LemonbusError`` for a wrong one. Pure."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Generate. If there is nothing to generate from, load the model, or unload it if ``keep_alive`` is 0."""
        request = self.read(body_decoding.read_json(req, self._session.settings.body_limit), client_of(req.env))
        context = request_context(req.env)
        ttl = ollama_loading.ttl_after_request(context, request.fields.keep_alive)
        size = request.fields.options.wanted(context) if request.fields.options else 0
        clock = AnswerClock(context.elapsed, SERVER_CLOCK.nanoseconds)
        if not request.endpoint:
            self._change_model_state(req, resp, request, clock, size)
            return
        translated = TranslatedRequest(
            request.endpoint,
            request.fields.model or "",
            request.bus_body(),
            writer=AnswerWriter(self.shape, clock) if request.fields.stream else None,
            answer=AnswerFormat(falcon.MEDIA_JSON, lambda answer: write_whole(answer, self.shape, clock)),
            ttl=ttl,
            context=size,
            names=self.names,
        )
        context.inference = self.counted_as
        answer_inference(self._session, req, resp, translated)

    def _change_model_state(
        self, req: falcon.Request, resp: falcon.Response, request: Generation, clock: AnswerClock, size: int
    ) -> None:
        fields = request.fields
        ttl = ollama_loading.idle_seconds(fields.keep_alive)
        if ttl is None and not request.empty and not is_ollama_client(req.env):
            # Document 004 requires the field; Ollama loads the model without it.
            field = self.input_field
            raise invalid(
                f"`{field}` is required; to only load the model, send it empty, or send `keep_alive` instead", field
            )
        if not fields.model:
            raise invalid("`model` is required to load or unload one", "model")
        context = request_context(req.env)
        context.model = fields.model
        if ttl == 0:
            ollama_loading.unload(self._session, req.env, fields.model)
            reason = "unload"
        else:
            context.check_change("load a model")
            ollama_loading.load(self._session, req.env, fields.model, ttl, size)
            reason = "load"
        resp.content_type = ndjson.MEDIA_TYPE if fields.stream else falcon.MEDIA_JSON
        resp.data = model_state_line(fields.model, reason, self.shape, clock)
