"""llama.cpp's reads of a model: the tokens of a text, the text of tokens, and the prompt made from a conversation."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeVar

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference import chat_fields
from gateway.api.common.inference.chat_fields import ChatAnswerFormat, ChatTool, EngineObject, TemplateMessage
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.operations import entries_of
from gateway.api.llamacpp.native_requests import chosen_model
from gateway.fetching.image_source import ImageSource, image_source
from protocol.failures import invalid

Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class ReadRequest(msgspec.Struct, kw_only=True):
    """The fields of all of them. Other fields are passed on unread."""

    model: str | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""

    def with_inline_media(self, data: bytes, _image: ImageSource) -> bytes:
        """Return the body with its images in it; most bodies have none."""
        return data


class TokenizeRequest(ReadRequest, kw_only=True):
    """``POST tokenize``; a list mixes texts and token numbers."""

    content: str | list[str | Token]
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(ReadRequest, kw_only=True):
    """``POST detokenize``."""

    tokens: list[Token]


class ApplyTemplateRequest(ReadRequest, kw_only=True):
    """``POST apply-template``: the fields of a chat completion."""

    messages: Annotated[list[TemplateMessage], entries_of("messages")]
    tools: list[ChatTool] | None = None
    tool_choice: str | EngineObject | None = None
    response_format: ChatAnswerFormat | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if not self.messages:
            raise invalid("`messages` is empty", "messages")

    def with_inline_media(self, data: bytes, image: ImageSource) -> bytes:
        """Return the body with its images in it."""
        return chat_fields.with_inline_media(data, (message.content for message in self.messages), image)


R = TypeVar("R", bound=ReadRequest)


class ReadResource(InferenceResource[R]):
    """A route that the engine answers without a slot, beside its generations. It loads the model if necessary."""

    endpoint: ClassVar[str]

    def translate(self, req: falcon.Request, request: R, data: bytes) -> TranslatedRequest:
        """Check the request. It goes to the engine unchanged, and the answer comes back unchanged."""
        request.check()
        model = chosen_model(req, request.model)
        data = request.with_inline_media(data, image_source(self._session, req.env, self.endpoint, model))
        return TranslatedRequest(self.endpoint, model, data, weight=0)


class TokenizeResource(ReadResource[TokenizeRequest]):
    """``POST tokenize``: the tokens of a text."""

    request_type = TokenizeRequest
    endpoint: ClassVar[str] = "tokenize"


class DetokenizeResource(ReadResource[DetokenizeRequest]):
    """``POST detokenize``: the text of tokens."""

    request_type = DetokenizeRequest
    endpoint: ClassVar[str] = "detokenize"


class ApplyTemplateResource(ReadResource[ApplyTemplateRequest]):
    """``POST apply-template``: the prompt that a model's chat template makes from a conversation."""

    request_type = ApplyTemplateRequest
    endpoint: ClassVar[str] = "apply-template"
