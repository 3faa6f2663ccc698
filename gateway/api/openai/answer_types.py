"""The types of the answers, for the OpenAPI document. Engines write most answers, which may have more fields."""

from __future__ import annotations

from typing import Any

import msgspec

Logprobs = dict[str, Any]


class TokenUsage(msgspec.Struct):
    """Tokens of a request and its answer."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class AnsweredMessage(msgspec.Struct):
    """What the model wrote."""

    role: str
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(msgspec.Struct):
    """One of `n` answers."""

    index: int
    message: AnsweredMessage
    finish_reason: str | None
    logprobs: Logprobs | None = None


class ChatCompletion(msgspec.Struct):
    """The next message of a conversation."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage


class TextChoice(msgspec.Struct):
    """One of `n` texts for each prompt."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: Logprobs | None = None


class TextCompletion(msgspec.Struct):
    """The continuation of the prompt; `text` is the text of the first choice."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    text: str
    usage: TokenUsage


class Embedding(msgspec.Struct):
    """The vector of one input: numbers, or base64 of little-endian floats."""

    index: int
    embedding: list[float] | str
    object: str


class EmbeddingList(msgspec.Struct):
    """A vector for each input, in their order."""

    object: str
    data: list[Embedding]
    model: str
    usage: TokenUsage


class DrawnImage(msgspec.Struct):
    """An image in base64."""

    b64_json: str
    seed: int


class ImageList(msgspec.Struct):
    """The images."""

    created: int
    data: list[DrawnImage]


class TranscriptionText(msgspec.Struct):
    """The words of a recording; `verbose_json` also has the times."""

    text: str
