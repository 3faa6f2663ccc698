"""llama.cpp's routes: those that Lemonade documents under every version prefix, llama-server's without a prefix, and Cohere's rerank."""

from __future__ import annotations

from typing import ClassVar

from gateway.api.common.dialect import Dialect, Routes, versioned
from gateway.api.common.operations import Documentation
from gateway.api.llamacpp import completion, embedding, props, reranking, slots, tokens
from gateway.api.llamacpp.errors import llamacpp_error_body
from gateway.bus.session import SupervisorSession
from protocol.failures import Failure


class LlamaCppDialect(Dialect):
    """llama.cpp's own routes. Errors have llama-server's form on unprefixed routes, and the default form elsewhere."""

    error_prefixes: ClassVar[tuple[str, ...]] = (
        "/apply-template",
        "/chat/completions",
        "/completion",
        "/completions",
        "/detokenize",
        "/embedding",
        "/embeddings",
        "/infill",
        "/models",
        "/props",
        "/rerank",
        "/reranker",
        "/reranking",
        "/slots",
        "/tokenize",
    )

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes. ``/chat/completions`` and ``/models`` are OpenAI's."""
        rerank = reranking.RerankingResource(session)
        both: Routes = {
            "apply-template": tokens.ApplyTemplateResource(session),
            "detokenize": tokens.DetokenizeResource(session),
            "rerank": rerank,
            "reranker": rerank,
            "reranking": rerank,
            "slots": slots.SlotsResource(session),
            "slots/{slot_id}": slots.SlotResource(session),
            "tokenize": tokens.TokenizeResource(session),
        }
        generation = completion.CompletionResource(session)
        vectors = embedding.NativeEmbeddingResource(session)
        own: Routes = {
            "completion": generation,
            "completions": generation,
            "embedding": vectors,
            "embeddings": vectors,
            "infill": completion.InfillResource(session),
            "props": props.PropsResource(session),
        }
        cohere: Routes = {"/v2/rerank": reranking.CohereRerankResource(session)}
        return {**versioned(both), **cohere, **{f"/{path}": resource for path, resource in (both | own).items()}}

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.llamacpp.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return llama-server's form."""
        return llamacpp_error_body(failure, label, detail=detail)
