"""``GET /metrics``: all metrics of the server in Prometheus's text format."""

from __future__ import annotations

from typing import ClassVar, Final

import falcon

from gateway.access.scopes import Scope
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.messages.metrics import GetMetrics

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsResource:
    """Answers with the metrics that the supervisor has counted and collected."""

    scopes: ClassVar[dict[str, Scope]] = {"GET": Scope.METRICS}

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        models = request_context(req.env).models
        resp.data = self._session.call(req.env, lambda number: GetMetrics(number, models), bytes)
        resp.content_type = TEXT_FORMAT
        resp.set_header("Cache-Control", "no-store")
