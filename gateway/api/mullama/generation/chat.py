"""``POST /api/chat``: a conversation, with images and tools."""

from __future__ import annotations

from typing import Any, ClassVar

from gateway.api.common.inference.chat_fields import ChatTool
from gateway.api.mullama.generation.answers import message_fields
from gateway.api.mullama.generation.chat_messages import MullamaMessage, openai_messages
from gateway.api.mullama.generation.generation_resource import Generation, GenerationResource, chat_options
from gateway.api.mullama.generation.sampling_fields import GenerationFields
from gateway.http.bodies import body_decoding


class MullamaChatRequest(GenerationFields, kw_only=True):
    """A request for the next message of a conversation. ``tools`` have OpenAI's form."""

    messages: list[MullamaMessage] | None = None
    tools: list[ChatTool] | None = None


class ChatResource(GenerationResource):
    """``POST /api/chat``."""

    shape = staticmethod(message_fields)
    counted_as: ClassVar[str] = "chat/completions"
    input_field: ClassVar[str] = "messages"

    @staticmethod
    def read(data: bytes, client: str) -> Generation:
        """See :meth:`GenerationResource.read`."""
        request = body_decoding.decode(data, MullamaChatRequest, client)
        if not request.messages:
            return Generation(request, "", {}, empty=request.messages is not None)
        body: dict[str, Any] = {"messages": openai_messages(request.messages)}
        if request.tools:
            body["tools"] = request.tools
        return Generation(request, "chat/completions", {**body, **chat_options(request)})
