"""``load`` and ``unload`` of Lemonade's preview: GET does the same as POST, with the model in the query or the body."""

from __future__ import annotations

from typing import Any

import falcon
import msgspec

from gateway.api.common.dialect import PREVIEW_PREFIXES, Routes
from gateway.api.common.route_resource import RouteResource
from gateway.api.common.routes import Route
from gateway.api.lemonade.load import NAME_FIELDS, load_model, unload_model
from gateway.bus.session import SupervisorSession


class NamedModelQuery(msgspec.Struct):
    """The model, if the request has no body."""

    model_name: str | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET


class PreviewResource(RouteResource):
    """A route that also acts on GET."""

    def __init__(self, session: SupervisorSession, route: Route[Any, Any]) -> None:
        """Let the handler ask ``session``."""
        super().__init__(session, [route])
        self._route = route
        self.changes = frozenset({"GET", "POST"})
        by_get = route.operation._replace(body=None, needs=(), examples={}, query=NamedModelQuery)
        self.operations = {"GET": by_get, "POST": route.operation}

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer as POST does."""
        query = {field: req.params[field] for field in NAME_FIELDS if field in req.params}
        self.respond(self._route, {**query, **self.body(req)}, req, resp)

    def on_head(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        """Refuse: HEAD must not change anything."""
        raise falcon.HTTPMethodNotAllowed(["GET", "POST", "OPTIONS"])


def routes(session: SupervisorSession) -> Routes:
    """Return the routes below the preview's prefixes."""
    found = {route.path: PreviewResource(session, route) for route in (load_model, unload_model)}
    return {f"{prefix}/{path}": resource for prefix in PREVIEW_PREFIXES for path, resource in found.items()}
