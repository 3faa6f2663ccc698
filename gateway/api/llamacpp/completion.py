"""llama.cpp's own completions: ``/completion``, and ``/infill`` between two pieces of code. Answers may have chosen fields only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common import server_sent_events as sse
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.inference.stream_writer import EventStreamWriter
from gateway.api.common.request_fields import check_empty_prompts
from gateway.api.llamacpp.errors import llamacpp_error_event
from gateway.api.llamacpp.native_requests import Prompt, chosen_model, count_native_prompts
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import Failure
from protocol.wire.openai_chunks import payloads

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class NativeGenerationFields(msgspec.Struct, kw_only=True):
    """The fields of both routes that must be understood. Other fields are passed on unread."""

    model: str | None = None
    stream: bool | None = None
    n_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=128)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    n_probs: Count | None = None
    response_fields: list[str] | None = None

    @property
    def choices(self) -> int:
        """How many completions each prompt gets."""
        return self.n_cmpl or self.n or 1


class CompletionRequest(NativeGenerationFields, kw_only=True):
    """``POST /completion``."""

    prompt: Prompt


class ExtraText(msgspec.Struct):
    """A text from elsewhere that helps to fill in."""

    text: str
    filename: str | None = None


class InfillRequest(NativeGenerationFields, kw_only=True):
    """``POST /infill``. ``prompt`` is the text after the mark of the middle."""

    input_prefix: str
    input_suffix: str
    prompt: str | None = None
    input_extra: list[ExtraText] | None = None


def native_generation(
    req: falcon.Request, endpoint: str, data: bytes, request: NativeGenerationFields, prompts: int
) -> TranslatedRequest:
    """Return the request as it goes on the bus.

    ``response_fields`` is not passed on: the engine's last event would then not say that it is the last.
    """
    wanted = request.response_fields
    if wanted is not None:
        fields = _fields(data)
        del fields["response_fields"]
        data = msgspec.json.encode(fields)
    return TranslatedRequest(
        endpoint,
        chosen_model(req, request.model),
        data,
        weight=prompts * request.choices,
        writer=CompletionStreamWriter(wanted) if request.stream else None,
        answer=AnswerFormat(falcon.MEDIA_JSON, lambda answer: with_fields(answer.body, wanted)),
    )


class CompletionResource(InferenceResource[CompletionRequest]):
    """``POST /completion`` and ``/completions``."""

    request_type = CompletionRequest

    def translate(self, req: falcon.Request, request: CompletionRequest, data: bytes) -> TranslatedRequest:
        """Check the request. It goes to the engine nearly unchanged."""
        prompts = count_native_prompts(request.prompt, "prompt")
        check_empty_prompts(request.prompt, request.choices)
        return native_generation(req, "completion", data, request, prompts)


class InfillResource(InferenceResource[InfillRequest]):
    """``POST /infill``."""

    request_type = InfillRequest

    def translate(self, req: falcon.Request, request: InfillRequest, data: bytes) -> TranslatedRequest:
        """Check the request. It goes to the engine nearly unchanged."""
        return native_generation(req, "infill", data, request, 1)


_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_answer: Final = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]]).decode


def with_fields(body: bytes, wanted: Sequence[str] | None) -> bytes:
    """Return an answer, or a list of several, with only the wanted fields; None: all of them."""
    if wanted is None:
        return body
    answer = _answer(body)
    if isinstance(answer, list):
        return msgspec.json.encode([selected_fields(each, wanted) for each in answer])
    return msgspec.json.encode(selected_fields(answer, wanted))


def selected_fields(answer: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """Return the fields with these paths (``generation_settings/n_predict``); missing ones are left out."""
    found: dict[str, Any] = {}
    for path in wanted:
        value: Any = answer
        for name in path.split("/"):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            found[path] = value
    return found


class CompletionStreamWriter(EventStreamWriter):
    """Passes events on.

    The last event of each completion says ``"stop":true``; only this one has ``response_fields``.
    """

    def __init__(self, wanted: Sequence[str] | None) -> None:
        """Write only the wanted fields of the last event; None: all of them."""
        self._wanted = wanted

    def events(self, events: bytes) -> bytes:
        """Return the events for the client."""
        if self._wanted is None or b'"stop":true' not in events:
            return events
        return b"".join(sse.unnamed_event(self._payload(payload)) for payload in payloads(events))

    def _payload(self, payload: bytes) -> bytes:
        event = _object(payload)
        return with_fields(payload, self._wanted) if event.get("stop") is True else payload

    def end(self) -> bytes:
        """Return nothing: the last events of the completions were the end."""
        return b""

    def error(self, failure: Failure, label: str) -> bytes:
        """Return llama-server's error event."""
        return llamacpp_error_event(failure, label)
