"""Ollama's routes. Errors below ``/api`` have the form of ``api/mullama``."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.common.operations import Documentation
from gateway.api.ollama import embed, models, pull, version
from gateway.bus.session import SupervisorSession


class OllamaDialect(Dialect):
    """Ollama's API."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes."""
        return {
            "/": version.RootResource(),
            "/api/version": version.VersionResource(),
            "/api/tags": models.TagsResource(session),
            "/api/ps": models.RunningModelsResource(session),
            "/api/show": models.ShowResource(session),
            "/api/pull": pull.OllamaPullResource(session),
            "/api/copy": models.CopyResource(session),
            "/api/delete": models.OllamaDeleteResource(session),
            "/api/embed": embed.EmbedResource(session),
            "/api/create": version.create(),
            "/api/push": version.push(),
            "/api/blobs/{digest}": version.blobs(),
        }

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.ollama.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
