"""A route for embeddings below ``/api``: reads the request, asks the engine, and applies ``keep_alive``."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import falcon
import msgspec

from gateway.api.common.inference.embedding_vectors import EmbeddingFields, Vectors, read_vectors
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.models import model_lifetime
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from gateway.requests.inference import WholeAnswer
from gateway.requests.late_answer import AnswerFormat


class EmbeddingResource(InferenceResource):
    """A falcon resource for POST; a subclass writes the answer."""

    @abc.abstractmethod
    def answer_fields(
        self, request: EmbeddingFields, vectors: Vectors, answer: WholeAnswer, elapsed: Callable[[], float]
    ) -> dict[str, Any]:
        """Return the fields of an answer. ``elapsed`` returns the seconds since the request came."""

    def translate(self, req: falcon.Request) -> TranslatedRequest:
        """Check the request."""
        request, _ = body_decoding.read_object(req, self.body_limit, EmbeddingFields)
        body, texts = request.bus_body(), request.texts()
        context = request_context(req.env)
        ttl = model_lifetime.ttl_after_request(context, request.keep_alive)

        def write(answer: WholeAnswer) -> bytes:
            vectors = read_vectors(answer, request.dimensions)
            return msgspec.json.encode(self.answer_fields(request, vectors, answer, context.elapsed))

        return TranslatedRequest(
            "embeddings",
            request.model or "",
            body,
            weight=1 if isinstance(texts, str) else len(texts),
            answer=AnswerFormat(falcon.MEDIA_JSON, write),
            ttl=ttl,
            context=request.options.wanted(context) if request.options else 0,
        )
