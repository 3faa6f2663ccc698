"""OpenAI's embeddings. No engine knows the field ``dimensions``, so vectors are shortened here, as OpenAI does."""

from __future__ import annotations

import base64
import struct
from typing import Annotated, Any, Literal

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference.embeddings import read_vectors
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.openai.completions import Prompt, count_prompts
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """``POST embeddings``."""

    input: Prompt
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class EmbeddingsResource(InferenceResource[EmbeddingRequest]):
    """``POST embeddings``."""

    request_type = EmbeddingRequest

    def translate(self, _req: falcon.Request, request: EmbeddingRequest, data: bytes) -> TranslatedRequest:
        """Check the request. It goes to the engine unchanged, unless it wants shorter vectors."""
        weight = count_prompts(request.input, "input")
        if (dimensions := request.dimensions) is None:
            return TranslatedRequest("embeddings", request.model or "", data, weight=weight)
        as_base64 = request.encoding_format == "base64"
        return TranslatedRequest(
            "embeddings",
            request.model or "",
            _request_for_numbers(data),
            weight=weight,
            answer=AnswerFormat(
                falcon.MEDIA_JSON, lambda answer: _shortened_answer(answer, dimensions, as_base64=as_base64)
            ),
        )


def _request_for_numbers(data: bytes) -> bytes:
    """Return a request for vectors as numbers, whatever form the client wants."""
    fields: dict[str, Any] = msgspec.json.decode(data)
    return msgspec.json.encode({**fields, "encoding_format": "float"})


def _shortened_answer(answer: WholeAnswer, dimensions: int, *, as_base64: bool) -> bytes:
    """Return an answer whose vectors are cut to their first ``dimensions`` numbers and scaled to length 1.

    Raises ``invalid_request`` if the model's vectors are shorter, ``backend_error`` if the answer cannot be read.
    """
    vectors = read_vectors(answer, dimensions).vectors
    document: dict[str, Any] = msgspec.json.decode(answer.body)
    items = sorted(document["data"], key=lambda item: item.get("index", 0))
    document["data"] = [
        {**item, "embedding": _base64(vector) if as_base64 else vector}
        for item, vector in zip(items, vectors, strict=True)
    ]
    return msgspec.json.encode(document)


def _base64(vector: msgspec.Raw) -> str:
    """Return the numbers as 32-bit floats, lowest byte first, in base64."""
    numbers = msgspec.json.decode(vector)
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
