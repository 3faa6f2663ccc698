"""``messages`` and ``messages/count_tokens``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import falcon
import msgspec

from gateway.api.anthropic import message_answer
from gateway.api.anthropic.chat_request import NAMES, chat_body, prompt_body
from gateway.api.anthropic.message_events import MessageEventWriter
from gateway.api.anthropic.message_request import (
    Base64Source,
    ContentSource,
    DocumentBlock,
    ImageBlock,
    MessageRequest,
    PromptRequest,
    ToolResultBlock,
    UrlSource,
)
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.fetching.image_source import ImageSource, image_source
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import Code, LemonbusError

CHAT: Final = "chat/completions"
INPUT_TOKENS: Final = "chat/completions/input_tokens"
"""Endpoints of the internal format."""


class MessagesResource(InferenceResource[MessageRequest]):
    """``POST messages``: generates the next message of a conversation."""

    request_type = MessageRequest

    def translate(self, req: falcon.Request, request: MessageRequest, _data: bytes) -> TranslatedRequest:
        """Check the request and return the chat completion that answers it."""
        request.check()
        embed_images(request, image_source(self._session, req.env, CHAT, request.model))
        model, limit, one_call = request.model or "", request.max_tokens, request.one_call
        return TranslatedRequest(
            CHAT,
            model,
            msgspec.json.encode(chat_body(request)),
            writer=MessageEventWriter(model, limit, one_call=one_call) if request.stream else None,
            answer=AnswerFormat(
                falcon.MEDIA_JSON, lambda answer: message_answer.message(answer, limit, one_call=one_call)
            ),
            names=NAMES,
        )


class CountTokensResource(InferenceResource[PromptRequest]):
    """``POST messages/count_tokens``: the number of tokens in a message's prompt, by the engine's template and tokenizer."""

    request_type = PromptRequest

    def translate(self, req: falcon.Request, request: PromptRequest, _data: bytes) -> TranslatedRequest:
        """Check the request. The engine counts what it would get for the message."""
        request.check()
        embed_images(request, image_source(self._session, req.env, INPUT_TOKENS, request.model))
        return TranslatedRequest(
            INPUT_TOKENS,
            request.model or "",
            msgspec.json.encode(prompt_body(request)),
            weight=0,
            answer=AnswerFormat(falcon.MEDIA_JSON, message_answer.token_count),
            names=NAMES,
        )

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer; raises ``unsupported_operation`` for an engine that does not count."""
        try:
            super().on_post(req, resp)
        except LemonbusError as problem:
            failure = problem.failure
            if failure.code is not Code.UNSUPPORTED:
                raise
            message = "this model's engine does not count a prompt's tokens; `usage` of an answer has it"
            raise msgspec.structs.replace(failure, message=message).raised() from None


def embed_images(request: PromptRequest, image: ImageSource) -> None:
    """Replace the source of every image that has a URL. ``image`` fetches or refuses it, naming the field."""
    for position, message in enumerate(request.messages):
        if not isinstance(message.content, str):
            _embed(message.content, f"messages[{position}].content", image)


def _embed(content: Iterable[object], where: str, image: ImageSource) -> None:
    for index, block in enumerate(content):
        at = f"{where}[{index}]"
        match block:
            case ImageBlock(source=UrlSource(url=url)):
                head, _, data = image(url, f"{at}.source.url").partition(";base64,")
                block.source = Base64Source(head.removeprefix("data:"), data)
            case ToolResultBlock(content=list(inner)):
                _embed(inner, f"{at}.content", image)
            case DocumentBlock(source=ContentSource(content=list(inner))):
                _embed(inner, f"{at}.source.content", image)
