"""Ollama's routes and errors, and which requests below ``/api`` come from Ollama's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.common.ollama_clients import is_ollama_client
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.ollama import embed, models, pull, version
from gateway.bus.session import SupervisorSession
from gateway.http.errors import error_object
from protocol.failures import Failure

_OWN: Final = ("version", "tags", "ps", "show", "pull", "copy", "delete", "embed", "create", "push", "blobs")


class OllamaDialect(Dialect):
    """Ollama's API. For its clients, ``error`` is a text; document 004 has an object there, which they cannot show."""

    error_prefixes: ClassVar[tuple[str, ...]] = tuple(f"/api/{name}" for name in _OWN)
    shared_error_prefixes: ClassVar[tuple[str, ...]] = ("/api",)

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes."""
        return {
            **resources(session, version, models, pull),
            "/api/embed": embed.EmbedResource(session),
        }

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.ollama.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION

    def is_client(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request comes from one of Ollama's clients."""
        return is_ollama_client(environ)

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return the JSON body of an error response: the message, and any other known fields."""
        fields = error_object(failure, label, detail=detail)
        return msgspec.json.encode({"error": fields.pop("message"), **fields})
