"""llama.cpp's reads of a model: tokens of a text, the text of tokens, and the prompt that a conversation becomes."""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.media_urls import check_media_urls
from gateway.api.llamacpp.model_choice import chosen_model
from gateway.http import body_decoding
from protocol.failures import invalid

Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class ReadRequest(msgspec.Struct, kw_only=True):
    """What all of them have; other fields are passed on unread."""

    model: str | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""


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

    messages: list[dict[str, Any]]

    def check(self) -> None:
        """Refuse media that the engine would fetch from elsewhere."""
        if not self.messages:
            raise invalid("`messages` is empty", "messages")
        check_media_urls(message.get("content") for message in self.messages)


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
        return TranslatedRequest(self.endpoint, chosen_model(req, request.model), data, weight=0)


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
