"""``GET /metrics``: all metrics of the server in Prometheus's text format."""

from __future__ import annotations

from typing import Final

from gateway.api.common.routes import Content, HttpCaller, Nothing, route
from protocol.config.api_keys import Scope
from protocol.messages.metrics import GetMetrics

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


@route("GET", "/metrics", scope=Scope.METRICS, texts=("text/plain",), secret=True)
def show_metrics(caller: HttpCaller, _request: Nothing) -> Content:
    """All metrics, for Prometheus."""
    return Content(TEXT_FORMAT, caller.ask(lambda number: GetMetrics(number, caller.context.models), bytes))
