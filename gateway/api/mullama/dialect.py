"""Mullama's routes, and its form of errors below ``/api``."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.mullama import embeddings, load, metrics, models, pull, status
from gateway.api.mullama.generation import chat, generate
from gateway.bus.session import SupervisorSession
from gateway.http.errors import error_object
from protocol.failures import Failure


class MullamaDialect(Dialect):
    """Mullama's API. Errors below ``/api`` have its form, except on Ollama's routes and for Ollama's clients."""

    error_prefixes: ClassVar[tuple[str, ...]] = ("/api", "/api/models", "/api/defaults", "/api/system")
    """The first path is shared with Ollama; the others are not."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes."""
        return {
            "/api/generate": generate.GenerateResource(session),
            "/api/chat": chat.ChatResource(session),
            "/api/embeddings": embeddings.MullamaEmbeddingsResource(session),
            **resources(session, models, load, pull, status, metrics),
        }

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.mullama.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return only the error object, without the ``status`` and ``message`` of Lemonade's form."""
        return msgspec.json.encode({"error": error_object(failure, label, detail=detail)})
