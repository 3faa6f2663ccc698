"""Reranking: scores of documents for a query, in the form of llama.cpp and Jina, and in the form of Cohere's ``/v2/rerank``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.operations import entries_of
from gateway.api.llamacpp.native_requests import chosen_model
from gateway.http.request_context import request_context
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import DECODE_ERRORS, invalid, not_understood

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


class RerankDocument(msgspec.Struct):
    """A document as an object. Its other fields are ignored."""

    text: str


class RerankFields(msgspec.Struct):
    """A query and the documents to compare with it. Each document is a separate task in the engine."""

    query: str
    documents: Annotated[list[str | RerankDocument], entries_of("documents")]
    model: str | None = None
    top_n: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if not self.documents:
            raise invalid("`documents` is empty", "documents")
        if self.rank_fields not in (None, [], ["text"]):
            raise invalid("`rank_fields` is not supported: only the `text` of a document is scored", "rank_fields")

    @property
    def document_texts(self) -> list[str]:
        """Return the documents in the engine's form."""
        return [each if isinstance(each, str) else each.text for each in self.documents]


class RerankRequest(RerankFields):
    """``POST rerank``."""

    texts: Any = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        super().check()
        if self.texts is not None:  # the engine would mistake it for the other server's request
            raise invalid("`texts` is another server's name for `documents`: send only `documents`", "texts")


def in_input_order(answer: bytes, count: int, returned: Sequence[str] = ()) -> dict[str, Any]:
    """Return the engine's answer with its ``count`` results in the order of the documents.

    ``returned``: documents to include.
    """
    try:
        body = _object(answer)
        results: list[dict[str, Any]] = body["results"]
        results.sort(key=lambda result: result["index"])
        if len(results) != count:
            raise not_understood(f"{len(results)} results for {count} documents")
        for result in results if returned else ():
            result["document"] = {"text": returned[result["index"]]}
    except (LookupError, TypeError, AttributeError, *DECODE_ERRORS) as problem:
        raise not_understood(problem) from None
    return body


class RerankingResource(InferenceResource[RerankRequest]):
    """``POST rerank``, ``reranking`` and ``reranker``: scores of documents for a query."""

    request_type = RerankRequest

    def translate(self, req: falcon.Request, request: RerankRequest, data: bytes) -> TranslatedRequest:
        """Check the request. The answer has one score per document, in the order of the documents."""
        request.check()
        documents = len(request.documents)
        if not all(isinstance(each, str) for each in request.documents):
            data = msgspec.json.encode({**_fields(data), "documents": request.document_texts})
        count = documents if request.top_n is None else min(documents, request.top_n)
        returned = request.document_texts if request.return_documents else ()
        return TranslatedRequest(
            "rerank",
            chosen_model(req, request.model),
            data,
            weight=documents,
            answer=AnswerFormat(
                falcon.MEDIA_JSON, lambda answer: msgspec.json.encode(in_input_order(answer.body, count, returned))
            ),
        )


class CohereRerankRequest(RerankFields):
    """``POST /v2/rerank``.

    ``max_tokens_per_doc`` and ``priority`` are accepted, but a document that is too long is refused.
    """


def cohere_answer(answer: bytes, request: CohereRerankRequest, label: str) -> bytes:
    """Return the engine's answer in Cohere's form, best document first. ``label``: the request id."""
    texts = request.document_texts
    try:
        body = in_input_order(answer, len(texts))
        best = sorted(body["results"], key=lambda result: -result["relevance_score"])[: request.top_n]
        results = [{"index": each["index"], "relevance_score": each["relevance_score"]} for each in best]
        if request.return_documents:
            results = [{**each, "document": {"text": texts[each["index"]]}} for each in results]
        tokens = body["usage"]["prompt_tokens"]
    except (LookupError, TypeError) as problem:
        raise not_understood(problem) from None
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}, "tokens": {"input_tokens": tokens}}
    return msgspec.json.encode({"id": label, "results": results, "meta": meta})


class CohereRerankResource(InferenceResource[CohereRerankRequest]):
    """``POST /v2/rerank``. Cohere's clients read the top-level ``message`` of an error in the default form."""

    request_type = CohereRerankRequest

    def translate(self, req: falcon.Request, request: CohereRerankRequest, _data: bytes) -> TranslatedRequest:
        """Check the request."""
        request.check()
        body: dict[str, object] = {"query": request.query, "documents": request.document_texts}
        if request.model:
            body["model"] = request.model
        label = request_context(req.env).label
        return TranslatedRequest(
            "rerank",
            request.model or "",
            msgspec.json.encode(body),
            weight=len(request.documents),
            answer=AnswerFormat(falcon.MEDIA_JSON, lambda answer: cohere_answer(answer.body, request, label)),
        )
