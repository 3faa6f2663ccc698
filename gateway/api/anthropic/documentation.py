"""What Anthropic's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gateway.api.anthropic import messages
from gateway.api.common.operations import EVENT_STREAM, INFERENCE, Documentation, Operation, Stream

_PROMPT: Final = {
    "model": "SmolLM2-135M-Instruct-GGUF",
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
}
_MESSAGE: Final = {**_PROMPT, "max_tokens": 64}


class MessageUsage(msgspec.Struct):
    """Tokens of a message; cached prompt tokens are counted separately."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


class AnthropicMessage(msgspec.Struct):
    """A message: blocks of text, thoughts and tool calls."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct):
    """Tokens of a prompt."""

    input_tokens: int


class AnthropicErrorObject(msgspec.Struct, kw_only=True):
    """Anthropic's type of the error, and our code."""

    type: str
    message: str
    code: str
    param: str | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET


class AnthropicError(msgspec.Struct):
    """An error in Anthropic's form."""

    type: Literal["error"]
    error: AnthropicErrorObject
    request_id: str


DOCUMENTATION: Final = Documentation(
    "Anthropic",
    "Anthropic's Messages API.",
    {
        messages.MessagesResource: {
            "POST": Operation(
                "Generates the next message of a conversation.",
                answer=AnthropicMessage,
                stream=Stream(
                    EVENT_STREAM,
                    'event: message_start\ndata: {"type":"message_start"}\n\n'
                    'event: message_stop\ndata: {"type":"message_stop"}\n\n',
                ),
                failures=INFERENCE,
                examples={"whole": _MESSAGE, "stream": {**_MESSAGE, "stream": True}},
            )
        },
        messages.CountTokensResource: {
            "POST": Operation(
                "Counts the tokens of a prompt.",
                answer=TokenCount,
                failures=INFERENCE,
                examples={"a prompt": _PROMPT},
            )
        },
    },
    error=AnthropicError,
)
