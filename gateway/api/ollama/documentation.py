"""What Ollama's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.inference.embedding_vectors import EmbeddingFields
from gateway.api.common.ndjson import MEDIA_TYPE
from gateway.api.common.operations import CHANGE, INFERENCE, UNSUPPORTED, Documentation, Operation, Stream
from gateway.api.common.unsupported import UnsupportedResource
from gateway.api.ollama import embed, models, pull, version

_MODEL: Final = {"model": "llama3.2:1b"}


class OllamaVersion(msgspec.Struct):
    """The version of Ollama whose API this is, and ours."""

    version: str
    lemonbus: str


class TaggedModels(msgspec.Struct):
    """The downloaded models."""

    models: list[dict[str, Any]]


class ModelDescription(msgspec.Struct):
    """All that is known of a model."""

    modelfile: str
    parameters: str
    template: str
    license: str
    details: dict[str, Any]
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaVectors(msgspec.Struct):
    """One vector for each input; durations are in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class PullStatus(msgspec.Struct):
    """The model is downloaded."""

    status: str
    done: bool


class OllamaError(msgspec.Struct, kw_only=True):
    """An error of Ollama's routes, and on other routes below `/api` for Ollama's clients."""

    error: str
    """What happened."""
    type: str
    code: str
    param: str | None
    request_id: str
    model: str | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET


DOCUMENTATION: Final = Documentation(
    "Ollama",
    "What Ollama's clients ask beyond Mullama's routes. In errors of these routes, `error` is a text. On `/api/generate`, `/api/chat` and"
    " `/api/embeddings`, which Mullama has as well, and on unknown paths below `/api`, it is a text for Ollama's clients alone: those with"
    " `ollama` in their `User-Agent` or `application/x-ndjson` in `Accept`, and browsers whose `Accept` is `application/json`.",
    {
        version.RootResource: {"GET": Operation("Says that the server is running.", texts=("text/plain", "text/html"))},
        version.VersionResource: {"GET": Operation("Shows versions.", answer=OllamaVersion)},
        models.TagsResource: {"GET": Operation("Lists the downloaded models.", answer=TaggedModels)},
        models.RunningModelsResource: {"GET": Operation("Lists the loaded models.", answer=TaggedModels)},
        models.ShowResource: {
            "POST": Operation(
                "Shows a downloaded model.",
                body=models.NamedModelRequest,
                needs=("model", "name"),
                answer=ModelDescription,
                failures=CHANGE,
                examples={"one": _MODEL},
            )
        },
        models.CopyResource: {
            "POST": Operation(
                "Gives a model another name.",
                body=models.CopyRequest,
                failures=CHANGE,
                examples={"one": {"source": "llama3.2:1b", "destination": "assistant"}},
            )
        },
        models.OllamaDeleteResource: {
            "DELETE": Operation(
                "Removes such a name, or a model with its files.",
                body=models.NamedModelRequest,
                needs=("model", "name"),
                failures=CHANGE,
                examples={"one": _MODEL},
            )
        },
        pull.OllamaPullResource: {
            "POST": Operation(
                "Downloads a model.",
                body=pull.OllamaPullRequest,
                needs=("model", "name"),
                answer=PullStatus,
                stream=Stream(MEDIA_TYPE, '{"status":"pulling manifest"}\n{"status":"success","done":true}\n'),
                failures=CHANGE,
                examples={"with progress": _MODEL, "whole": {**_MODEL, "stream": False}},
            )
        },
        embed.EmbedResource: {
            "POST": Operation(
                "Makes a vector of each input.",
                body=EmbeddingFields,
                needs=("input", "prompt"),
                answer=OllamaVectors,
                failures=INFERENCE,
                examples={"texts": {"model": "nomic-embed", "input": ["a cat", "a dog"]}},
            )
        },
        UnsupportedResource: {"POST": Operation("Is not served: 501 says what to use instead.", failures=UNSUPPORTED)},
        version.BlobsResource: dict.fromkeys(
            ("GET", "POST", "HEAD"), Operation("Is not served: 501 says what to use instead.", failures=UNSUPPORTED)
        ),
    },
    error=OllamaError,
)
