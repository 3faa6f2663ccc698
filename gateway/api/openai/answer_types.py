"""The types of the answers, for the OpenAPI document. Engines write most answers, which may have more fields."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.models.recipes import OptionValue

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


class ModelObject(msgspec.Struct):
    """A model, with the fields of OpenAI, Lemonade and Anthropic; with `show_all` it has more."""

    id: str
    object: str
    type: str
    display_name: str
    created: int
    created_at: str
    owned_by: str
    checkpoint: str
    recipe: str
    device: str
    dtype: str
    labels: list[str]
    recipe_options: dict[str, OptionValue]
    """The load options that are saved for the model."""
    root: str | msgspec.UnsetType = msgspec.UNSET
    """The registered name, if `id` is another name that the configuration or a user gave the model."""
    context_length: int | msgspec.UnsetType = msgspec.UNSET
    """Context tokens of each request: of the loaded engine, else of the next one."""
    max_context_window: int | msgspec.UnsetType = msgspec.UNSET
    """Tokens that the model was trained for, according to its file."""
    name: str | msgspec.UnsetType = msgspec.UNSET
    downloaded: bool | msgspec.UnsetType = msgspec.UNSET
    size: float | msgspec.UnsetType = msgspec.UNSET
    suggested: bool | msgspec.UnsetType = msgspec.UNSET
    model_type: str | msgspec.UnsetType = msgspec.UNSET
    loaded: bool | msgspec.UnsetType = msgspec.UNSET
    aliases: list[str] | msgspec.UnsetType = msgspec.UNSET
    supported: bool | msgspec.UnsetType = msgspec.UNSET
    unsupported_reason: str | msgspec.UnsetType = msgspec.UNSET


class ModelList(msgspec.Struct):
    """Models, or one page of them."""

    object: str
    data: list[ModelObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
