"""``POST /api/embed``: one vector for each input, in Ollama's newer form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.api.common.inference.embeddings import EmbeddingFields, EmbeddingResource, Vectors
from gateway.requests.answer_stream import WholeAnswer

_NS_PER_S: Final = 1_000_000_000


class EmbedResource(EmbeddingResource):
    """``POST /api/embed``."""

    def answer_fields(
        self, _request: EmbeddingFields, vectors: Vectors, answer: WholeAnswer, elapsed: Callable[[], float]
    ) -> dict[str, Any]:
        """Return the fields of the answer; durations are in nanoseconds."""
        total = elapsed()
        return {
            "model": vectors.model,
            "embeddings": vectors.vectors,
            "total_duration": int(total * _NS_PER_S),
            "load_duration": int(max(0.0, total - answer.outcome.total_s) * _NS_PER_S),
            "prompt_eval_count": vectors.tokens,
        }
