"""Ollama's routes. Errors below ``/api`` have the form of ``api/mullama``."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.ollama import embed
from gateway.bus.session import SupervisorSession


class OllamaDialect(Dialect):
    """Ollama's API."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes."""
        return {"/api/embed": embed.EmbedResource(session)}
