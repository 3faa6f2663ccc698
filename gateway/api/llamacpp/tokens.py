"""llama.cpp's reads of a model: tokens of a text, the text of tokens, and the prompt that a conversation becomes."""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference import media_urls
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.operations import entries_of
from gateway.api.llamacpp.model_choice import chosen_model
from gateway.http.bodies import body_decoding
from gateway.media.image_source import ImageSource, image_source
from protocol.failures import invalid

Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class ReadRequest(msgspec.Struct, kw_only=True):
    """What all of them have; other fields are passed on unread."""

    model: str | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""

    def with_inline_media(self, data: bytes, _image: ImageSource) -> bytes:
        """Return the body with its images in it; most have none."""
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

    messages: Annotated[list[dict[str, Any]], entries_of("messages")]

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if not self.messages:
            raise invalid("`messages` is empty", "messages")

    def with_inline_media(self, data: bytes, image: ImageSource) -> bytes:
        """Return the body with its images in it."""
        return media_urls.with_inline_media(data, (message.get("content") for message in self.messages), image)


class ReadResource(InferenceResource):
    """A route that the engine answers without a slot, beside its generations; loads the model if need be."""

    endpoint: ClassVar[str]

    @abc.abstractmethod
    def read(self, data: bytes) -> ReadRequest:
        """Return the checked request; raises ``invalid_request``."""

    def translate(self, req: falcon.Request) -> TranslatedRequest:
        """Check the request; it goes to the engine as it is, and so does the answer come back."""
        data = body_decoding.read_json(req, self.body_limit)
        request = self.read(data)
        request.check()
        model = chosen_model(req, request.model)
        data = request.with_inline_media(data, image_source(self._session, req.env, self.endpoint, model))
        return TranslatedRequest(self.endpoint, model, data, weight=0)


class TokenizeResource(ReadResource):
    """``POST tokenize``: the tokens of a text."""

    endpoint: ClassVar[str] = "tokenize"

    def read(self, data: bytes) -> ReadRequest:
        """Check the fields."""
        return body_decoding.decode(data, TokenizeRequest)


class DetokenizeResource(ReadResource):
    """``POST detokenize``: the text of tokens."""

    endpoint: ClassVar[str] = "detokenize"

    def read(self, data: bytes) -> ReadRequest:
        """Check the fields."""
        return body_decoding.decode(data, DetokenizeRequest)


class ApplyTemplateResource(ReadResource):
    """``POST apply-template``: the prompt that a model's chat template makes of a conversation."""

    endpoint: ClassVar[str] = "apply-template"

    def read(self, data: bytes) -> ReadRequest:
        """Check the fields."""
        return body_decoding.decode(data, ApplyTemplateRequest)
