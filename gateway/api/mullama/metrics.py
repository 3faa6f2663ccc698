"""``GET /metrics``: all metrics of the server in Prometheus's text format."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.routes import Content, HttpCaller, route
from protocol.config.api_keys import Scope
from protocol.messages.metrics import GetMetrics

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsQuery(msgspec.Struct, omit_defaults=True):
    """Which names the metrics have."""

    mullama: bool = False
    """Also those of the metrics that Mullama documents: `mullama_…`."""


@route("GET", "/metrics", scope=Scope.METRICS, texts=("text/plain",), secret=True)
def show_metrics(caller: HttpCaller, query: MetricsQuery) -> Content:
    """All metrics, for Prometheus."""
    models = caller.context.models
    return Content(TEXT_FORMAT, caller.ask(lambda number: GetMetrics(number, models, query.mullama), bytes))
