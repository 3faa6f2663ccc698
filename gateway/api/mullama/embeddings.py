"""``POST /api/embeddings``: one vector for each input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.api.common.inference.embeddings import EmbeddingFields, EmbeddingResource, Vectors
from gateway.requests.answer_stream import WholeAnswer


class MullamaEmbeddingsResource(EmbeddingResource):
    """``POST /api/embeddings``. A request with Ollama's ``prompt`` also gets its vector in ``embedding``."""

    def answer_fields(
        self, request: EmbeddingFields, vectors: Vectors, _answer: WholeAnswer, _elapsed: Callable[[], float]
    ) -> dict[str, Any]:
        """Return the fields of Mullama's answer, and Ollama's if the request was Ollama's."""
        fields = {
            "model": vectors.model,
            "embeddings": vectors.vectors,
            "dimensions": vectors.dimensions,
            "total_tokens": vectors.tokens,
        }
        if request.prompt is not None and vectors.vectors:
            fields["embedding"] = vectors.vectors[0]
        return fields
