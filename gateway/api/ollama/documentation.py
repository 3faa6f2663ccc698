"""What Ollama's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.inference.embeddings import EMBEDDING
from gateway.api.common.operations import Documentation
from gateway.api.ollama import embed


class OllamaVectors(msgspec.Struct):
    """One vector for each input; durations are in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


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
    "Routes of Ollama's clients that Mullama does not have. In errors of these routes, `error` is a text. On `/api/generate`, `/api/chat` and"
    " `/api/embeddings`, which Mullama has as well, and on unknown paths below `/api`, it is a text for Ollama's clients alone: those with"
    " `ollama` in their `User-Agent` or `application/x-ndjson` in `Accept`, and browsers whose `Accept` is `application/json`.",
    {
        embed.EmbedResource: {"POST": EMBEDDING._replace(answer=OllamaVectors)},
    },
    error=OllamaError,
)
