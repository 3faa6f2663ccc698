"""The routes of OpenAI's Responses API."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes, versioned
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.responses import create, input_tokens, stored
from gateway.api.responses.background import BackgroundRuns
from gateway.api.responses.store_client import StoreClient
from gateway.bus.session import SupervisorSession


class ResponsesDialect(Dialect):
    """OpenAI's Responses API. Its errors have the default form, which is OpenAI's."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes, under every version prefix."""
        store = StoreClient(session)
        routes = versioned(
            {
                "responses": create.ResponsesResource(session, store, session.part(BackgroundRuns)),
                "responses/input_tokens": input_tokens.InputTokensResource(session, store),
            }
        )
        return {**routes, **resources(session, stored)}

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.responses.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
