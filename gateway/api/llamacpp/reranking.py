"""llama.cpp's reranking: scores of documents for a query."""

from __future__ import annotations

from typing import Any, Final

import falcon
import msgspec

from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.request_fields import text_of
from gateway.api.llamacpp.errors import unreadable
from gateway.api.llamacpp.model_choice import chosen_model
from gateway.http.bodies import body_decoding
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import invalid
from protocol.wire.decoding import DECODE_ERRORS

_MAX_TOP_N: Final = 2**31
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def check_rerank(body: dict[str, Any]) -> int:
    """Return the number of documents, each of which is a task of its own in the engine; raises ``invalid_request``."""
    query, documents = body.get("query"), body.get("documents")
    if not isinstance(query, str):
        raise invalid("`query` must be a string" if query is not None else "`query` is required", "query")
    if documents is None:
        raise invalid("`documents` is required", "documents")
    if not isinstance(documents, list) or not documents or not all(isinstance(each, str) for each in documents):
        raise invalid("`documents` must be a list of one or more strings", "documents")
    if "texts" in body:  # even as null: the engine would take it for the other server's request
        raise invalid("`texts` is another server's name for `documents`: send `documents` alone", "texts")
    top = body.get("top_n")
    if top is not None and (type(top) is not int or not 0 <= top < _MAX_TOP_N):
        raise invalid("`top_n` must be a whole number from 0 up", "top_n")
    return len(documents)


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
        data = body_decoding.read_json(req, self.body_limit)
        body = body_decoding.decode_object(data)
        documents = check_rerank(body)
        top = body.get("top_n")
        count = documents if top is None else min(documents, top)
        return TranslatedRequest(
            "rerank",
            chosen_model(req, text_of(body, "model")),
            data,
            weight=documents,
            answer=AnswerFormat(falcon.MEDIA_JSON, lambda answer: in_input_order(answer.body, count)),
        )
