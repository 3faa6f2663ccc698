"""The routes of OpenAI's Responses API."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes, versioned
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.responses import create, input_tokens, stored
from gateway.api.responses.background import BackgroundRuns
from gateway.bus.session import SupervisorSession


class ResponsesDialect(Dialect):
    """OpenAI's Responses API. Its errors have the default form, which is OpenAI's."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes, under every version prefix."""
        store, background = stored.StoreClient(session), BackgroundRuns(session)
        silence = session.settings.header_silence
        routes = versioned(
            {
                "responses": create.ResponsesResource(session, store, background),
                "responses/input_tokens": input_tokens.InputTokensResource(session, store),
                "responses/{response_id}": stored.StoredResponseResource(store, background.feed, silence),
                "responses/{response_id}/input_items": stored.InputItemsResource(store),
                "responses/{response_id}/cancel": stored.CancelResource(store),
            }
        )
        return {**routes, **resources(session, stored)}

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.responses.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
