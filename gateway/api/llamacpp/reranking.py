"""llama.cpp's reranking: scores of documents for a query."""

from __future__ import annotations

from typing import Annotated, Any, Final

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.operations import entries_of
from gateway.api.llamacpp.errors import unreadable
from gateway.api.llamacpp.model_choice import chosen_model
from gateway.http.bodies import body_decoding
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import invalid
from protocol.wire.decoding import DECODE_ERRORS

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


class RerankRequest(msgspec.Struct):
    """A query, and the documents that are compared with it: each is a task of its own in the engine."""

    query: str
    documents: Annotated[list[str], entries_of("documents")]
    model: str | None = None
    top_n: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    texts: Any = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if not self.documents:
            raise invalid("`documents` is empty", "documents")
        if self.texts is not None:  # the engine would take it for the other server's request
            raise invalid("`texts` is another server's name for `documents`: send `documents` alone", "texts")


def in_input_order(answer: bytes, count: int) -> bytes:
    """Return the engine's answer with its ``count`` results in the order of the documents."""
    try:
        body = _object(answer)
        body["results"].sort(key=lambda result: result["index"])
        if len(body["results"]) != count:
            raise unreadable()
    except (LookupError, TypeError, AttributeError, *DECODE_ERRORS):
        raise unreadable() from None
    return msgspec.json.encode(body)


class RerankingResource(InferenceResource):
    """``POST rerank``, ``reranking`` and ``reranker``: scores of documents for a query."""

    def translate(self, req: falcon.Request) -> TranslatedRequest:
        """Check the request; the answer has one score per document, in the order of the documents."""
        request, data = body_decoding.read_object(req, self.body_limit, RerankRequest)
        request.check()
        documents = len(request.documents)
        count = documents if request.top_n is None else min(documents, request.top_n)
        return TranslatedRequest(
            "rerank",
            chosen_model(req, request.model),
            data,
            weight=documents,
            answer=AnswerFormat(falcon.MEDIA_JSON, lambda answer: in_input_order(answer.body, count)),
        )
