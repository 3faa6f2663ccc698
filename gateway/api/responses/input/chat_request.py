"""A request and its items as the body of a chat completion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.api.common.inference.sampling_fields import given_sampling
from gateway.api.common.inference.thinking import no_thinking
from gateway.api.responses.input.input_items import Item, Message, chat_messages
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.input.tools import tool_fields
from gateway.fetching.image_source import ImageSource, only_inline


def chat_body(request: ResponseRequest, items: Sequence[Item], image: ImageSource = only_inline) -> dict[str, Any]:
    """Return the chat completion's fields.

    ``items``: the whole conversation, oldest first. ``image``: resolves the URLs of its images.
    """
    body: dict[str, Any] = {"model": request.model} if request.model else {}
    body["messages"] = chat_messages(request.instructions, items, image)
    body |= given_sampling(request)
    if request.stop is not None:
        body["stop"] = request.stop
    if request.max_output_tokens is not None:
        body["max_tokens"] = request.max_output_tokens
    if request.wants_logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    body |= tool_fields(request)
    response_format = _response_format(request)
    if response_format:
        body["response_format"] = response_format
    body |= _reasoning(request)
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


NAMES: Final = {"messages": "input", "response_format": "text"}
"""Field of a chat → the request's field that it comes from, where they differ."""


def _response_format(request: ResponseRequest) -> dict[str, Any] | None:
    wanted = request.text.format if request.text else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    fields = msgspec.structs.asdict(wanted)
    del fields["type"]
    return {"type": "json_schema", "json_schema": {name: each for name, each in fields.items() if each is not None}}


def _reasoning(request: ResponseRequest) -> dict[str, Any]:
    """Return how much to think, in the two words that chat templates know."""
    arguments = dict(request.chat_template_kwargs or {})
    effort = request.reasoning.effort if request.reasoning else None
    if effort == "none":
        return no_thinking(arguments)
    if effort is not None:
        arguments.setdefault("reasoning_effort", effort)
    return {"chat_template_kwargs": arguments} if arguments else {}


def shortened(messages: Sequence[Message]) -> list[Message] | None:
    """Return the chat without the older half of its conversation, for ``truncation`` auto; None if it must stay whole.

    The system message and the last message stay. A tool's answer stays only with its call.
    """
    head = 1 if messages and messages[0]["role"] == "system" else 0
    start = head + (len(messages) - head + 1) // 2
    while start < len(messages) and messages[start]["role"] == "tool":
        start += 1
    if start >= len(messages) or start == head:
        return None
    return [*messages[:head], *messages[start:]]
