"""Embeddings for the routes below ``/api``: the request in OpenAI's form, the vectors of the answer, and what answers the route."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common import ollama_loading
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.ollama_loading import ContextOption, KeepAlive
from gateway.api.common.operations import INFERENCE, Operation, entries_of
from gateway.http.request_context import request_context
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import DECODE_ERRORS, invalid, not_understood


class EmbeddingFields(msgspec.Struct, kw_only=True):
    """The fields that both routes read. Ollama's ``truncate`` is ignored: an input that is too long is refused."""

    model: str | None = None
    input: str | Annotated[list[str], entries_of("input")] | None = None
    prompt: str | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**20)] | None = None
    keep_alive: KeepAlive | None = None
    options: ContextOption | None = None

    def texts(self) -> str | list[str]:
        """Return the texts to embed; raises ``invalid_request`` if there are none, or if two fields differ."""
        if self.input is None and self.prompt is None:
            raise invalid("`input` is required", "input")
        if self.input is not None and self.prompt is not None and self.input != self.prompt:
            raise invalid("`input` and `prompt` differ: send one", "input")
        texts = self.prompt if self.input is None else self.input
        if texts is None or texts == []:
            raise invalid("`input` is empty", "input")
        return texts

    def bus_body(self) -> bytes:
        """Return the request that goes on the bus; raises like :meth:`texts`."""
        body: dict[str, Any] = {"model": self.model} if self.model else {}
        return msgspec.json.encode({**body, "input": self.texts()})


EMBEDDING: Final = Operation(
    "Makes a vector of each input.",
    needs=("input", "prompt"),
    failures=INFERENCE,
    examples={"texts": {"model": "nomic-embed", "input": ["a cat", "a dog"]}},
)
"""Both routes in the OpenAPI document, but for their answers."""


class Vectors(NamedTuple):
    """The vectors of an answer, as JSON, in the order of the inputs."""

    model: str
    vectors: list[msgspec.Raw]
    dimensions: int
    tokens: int
    """Tokens of all inputs."""


class _Vector(msgspec.Struct):
    embedding: msgspec.Raw
    index: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0


class _Embeddings(msgspec.Struct):
    data: list[_Vector]
    model: str = ""
    usage: _Usage | None = None


_decode: Final = msgspec.json.Decoder(_Embeddings).decode
_decode_vector: Final = msgspec.json.Decoder(list[float]).decode


def read_vectors(answer: WholeAnswer, dimensions: int | None) -> Vectors:
    """Return an answer's vectors; if ``dimensions`` is given, they are cut to it and scaled to length 1.

    Raises ``invalid_request`` if the vectors are shorter, and ``backend_error`` if the answer cannot be read.
    """
    try:
        whole = _decode(answer.body)
        vectors = [each.embedding for each in sorted(whole.data, key=lambda each: each.index)]
        size = len(_decode_vector(vectors[0])) if vectors else 0
        if dimensions is not None:
            if dimensions > size:
                reason = f"`dimensions` is {dimensions}; the vectors of this model have {size}"
                raise invalid(reason, "dimensions")
            vectors, size = [_cut(vector, dimensions) for vector in vectors], dimensions
    except DECODE_ERRORS as problem:
        raise not_understood(problem, answer.model) from None
    tokens = whole.usage.prompt_tokens if whole.usage else answer.outcome.reported[0]
    return Vectors(whole.model or answer.model, vectors, size, tokens)


def _cut(vector: msgspec.Raw, dimensions: int) -> msgspec.Raw:
    kept = _decode_vector(vector)[:dimensions]
    length = math.hypot(*kept)
    return msgspec.Raw(msgspec.json.encode([each / length for each in kept] if length else kept))


class EmbeddingResource(InferenceResource[EmbeddingFields]):
    """A falcon resource for POST; a subclass writes the answer."""

    request_type = EmbeddingFields

    @abc.abstractmethod
    def answer_fields(
        self, request: EmbeddingFields, vectors: Vectors, answer: WholeAnswer, elapsed: Callable[[], float]
    ) -> dict[str, Any]:
        """Return the fields of an answer. ``elapsed`` returns the seconds since the request came."""

    def translate(self, req: falcon.Request, request: EmbeddingFields, _data: bytes) -> TranslatedRequest:
        """Check the request."""
        body, texts = request.bus_body(), request.texts()
        context = request_context(req.env)
        ttl = ollama_loading.ttl_after_request(context, request.keep_alive)

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
