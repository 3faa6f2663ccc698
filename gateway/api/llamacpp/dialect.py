"""llama.cpp's routes."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes, versioned
from gateway.api.llamacpp import reranking_and_slots
from gateway.bus.session import SupervisorSession


class LlamaCppDialect(Dialect):
    """llama.cpp's own routes; their errors have the default form."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes, under every version prefix."""
        return versioned(
            {
                "reranking": reranking_and_slots.RerankingResource(session),
                "rerank": reranking_and_slots.RerankingResource(session),
                "reranker": reranking_and_slots.RerankingResource(session),
                "slots": reranking_and_slots.SlotsResource(session),
                "slots/{slot_id}": reranking_and_slots.SlotResource(session),
            }
        )
