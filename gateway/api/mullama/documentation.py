"""What Mullama's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.inference.embeddings import EMBEDDING
from gateway.api.common.ndjson import MEDIA_TYPE
from gateway.api.common.operations import (
    INFERENCE,
    Documentation,
    ErrorObject,
    Operation,
    Stream,
)
from gateway.api.mullama import embeddings
from gateway.api.mullama.generation import chat, generate

_MODEL: Final = "llama3.2:1b"


class AnswerStatistics(msgspec.Struct, kw_only=True):
    """The cost of an answer, in Mullama's units and in Ollama's."""

    model: str
    created_at: str
    done: bool
    done_reason: str
    total_duration: int | msgspec.UnsetType = msgspec.UNSET
    load_duration: int | msgspec.UnsetType = msgspec.UNSET
    prompt_eval_count: int | msgspec.UnsetType = msgspec.UNSET
    prompt_eval_duration: int | msgspec.UnsetType = msgspec.UNSET
    eval_count: int | msgspec.UnsetType = msgspec.UNSET
    eval_duration: int | msgspec.UnsetType = msgspec.UNSET
    total_duration_ms: int | msgspec.UnsetType = msgspec.UNSET
    prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    completion_tokens: int | msgspec.UnsetType = msgspec.UNSET
    tokens_per_second: float | msgspec.UnsetType = msgspec.UNSET


class GeneratedText(AnswerStatistics, kw_only=True):
    """A text."""

    response: str
    thinking: str | msgspec.UnsetType = msgspec.UNSET


class GeneratedMessage(AnswerStatistics, kw_only=True):
    """The next message of a conversation."""

    message: dict[str, Any]


class MullamaVectors(msgspec.Struct):
    """One vector for each input."""

    model: str
    embeddings: list[list[float]]
    dimensions: int
    total_tokens: int
    embedding: list[float] | msgspec.UnsetType = msgspec.UNSET


class ApiError(msgspec.Struct):
    """An error of the routes below `/api`."""

    error: ErrorObject


DOCUMENTATION: Final = Documentation(
    "Mullama",
    "Mullama's API below `/api`; its answers also carry Ollama's fields.",
    {
        generate.GenerateResource: {
            "POST": Operation(
                "Generates a text; with an empty prompt (Ollama's clients may omit it) loads the model.",
                body=generate.GenerateRequest,
                needs=("prompt", "keep_alive"),
                answer=GeneratedText,
                stream=Stream(MEDIA_TYPE, '{"response":"Hel","done":false}\n{"response":"","done":true}\n'),
                failures=INFERENCE,
                examples={
                    "whole": {"model": _MODEL, "prompt": "Why is the sky blue?", "max_tokens": 64},
                    "stream": {"model": _MODEL, "prompt": "Why?", "stream": True, "options": {"num_predict": 16}},
                },
            )
        },
        chat.ChatResource: {
            "POST": Operation(
                "Generates the next message of a conversation; with no messages, loads the model as `/api/generate` does.",
                body=chat.MullamaChatRequest,
                needs=("messages", "keep_alive"),
                answer=GeneratedMessage,
                stream=Stream(
                    MEDIA_TYPE,
                    '{"message":{"role":"assistant","content":"Hel"},"done":false}\n{"message":{"role":"assistant","content":""},"done":true}\n',
                ),
                failures=INFERENCE,
                examples={
                    "whole": {"model": _MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
                },
            )
        },
        embeddings.MullamaEmbeddingsResource: {"POST": EMBEDDING._replace(answer=MullamaVectors)},
    },
    error=ApiError,
)
