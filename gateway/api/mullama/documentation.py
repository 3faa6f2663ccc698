"""What Mullama's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.inference.embedding_vectors import EmbeddingFields
from gateway.api.common.ndjson import MEDIA_TYPE
from gateway.api.common.operations import (
    CHANGE,
    INFERENCE,
    MODEL,
    Documentation,
    ErrorObject,
    Operation,
    Stream,
)
from gateway.api.mullama import embeddings, load, metrics, models, pull, status
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


class ListedModel(msgspec.Struct):
    """A downloaded model; only administrators see `path`."""

    alias: str
    path: str
    parameters: int
    context_size: int
    gpu_layers: int
    is_default: bool
    active_requests: int
    name: str
    loaded: bool
    size_bytes: int


class ListedModels(msgspec.Struct):
    """The downloaded models."""

    models: list[ListedModel]


class ShownModel(ListedModel):
    """A model, and what it can do."""

    architecture: str
    vocab_size: int
    capabilities: dict[str, bool]


class LoadedAlias(msgspec.Struct):
    """The model is ready."""

    status: str
    alias: str
    parameters: int
    context_size: int
    gpu_layers: int
    is_default: bool


class UnloadedAlias(msgspec.Struct):
    """The model is unloaded."""

    status: str
    alias: str


class DeletedAlias(UnloadedAlias):
    """The model is deleted."""

    files_removed: int
    kept_for: list[str]


class PulledCheckpoint(msgspec.Struct):
    """The model is downloaded."""

    status: str
    model: str
    repo: str
    size_bytes: int


class QuickStartModel(msgspec.Struct):
    """A model of the quick start."""

    name: str
    description: str
    size_hint: str
    tags: list[str]
    source: str = msgspec.field(name="from")
    has_thinking: bool = False
    has_vision: bool = False
    has_tools: bool = False


class ShortStatus(msgspec.Struct):
    """The server in a few figures."""

    status: str
    version: str
    uptime_secs: int
    models_loaded: int
    active_requests: int


class SystemStatus(msgspec.Struct):
    """The server in more figures."""

    version: str
    uptime_secs: int
    models_loaded: int
    http_endpoint: str
    ipc_endpoint: str
    default_model: str | None
    stats: dict[str, Any]


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
        embeddings.MullamaEmbeddingsResource: {
            "POST": Operation(
                "Makes a vector of each input.",
                body=EmbeddingFields,
                needs=("input", "prompt"),
                answer=MullamaVectors,
                failures=INFERENCE,
                examples={"texts": {"model": "nomic-embed", "input": ["a cat", "a dog"]}},
            )
        },
        models.MullamaModelsResource: {"GET": Operation("Lists the downloaded models.", answer=ListedModels)},
        models.MullamaModelResource: {
            "GET": Operation(
                "Shows a downloaded model. Its name may contain slashes.",
                answer=ShownModel,
                failures=MODEL,
                path="api/models/{name}",
            ),
            "DELETE": Operation(
                "Deletes a model and the files that no other model uses.",
                answer=DeletedAlias,
                failures=MODEL,
                path="api/models/{name}",
            ),
            "POST": Operation(
                "Unloads a model.", answer=UnloadedAlias, failures=MODEL, path="api/models/{name}/unload"
            ),
        },
        load.MullamaLoadResource: {
            "POST": Operation(
                "Loads a model of the catalogue, or a file of this machine.",
                body=load.MullamaLoadRequest,
                answer=LoadedAlias,
                failures=CHANGE,
                examples={"with options": {"alias": _MODEL, "context_size": 4096}},
            )
        },
        pull.MullamaPullResource: {
            "POST": Operation(
                "Downloads a model.",
                body=pull.MullamaPullRequest,
                answer=PulledCheckpoint,
                stream=Stream(
                    MEDIA_TYPE, '{"status":"downloading","progress":0.5}\n{"status":"success","done":true}\n'
                ),
                failures=CHANGE,
                examples={"with progress": {"name": _MODEL, "stream": True}},
            )
        },
        load.DefaultModelsResource: {
            "GET": Operation("Lists the models of the quick start.", answer=list[QuickStartModel])
        },
        load.UseDefaultModelResource: {
            "POST": Operation(
                "Downloads and loads one of them, and makes it the default model.", answer=LoadedAlias, failures=MODEL
            )
        },
        status.SystemStatusResource: {"GET": Operation("Shows the server's state.", answer=SystemStatus)},
        status.StatusResource: {"GET": Operation("Shows the server's state in short.", answer=ShortStatus)},
        metrics.MetricsResource: {"GET": Operation("All metrics, for Prometheus.", texts=("text/plain",))},
    },
    error=ApiError,
)
