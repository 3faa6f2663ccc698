"""Rules that hold for all documented routes."""

from __future__ import annotations

import pytest

from gateway.app import DIALECTS, create_app
from gateway.http.request_counts import RouteLabels
from protocol.messages.health import GetHealth, GetStats, StatsReport
from protocol.messages.models import GetModel, ListModels
from supervisor.metrics.server_metrics import MAX_DIALECTS, MAX_ENDPOINTS
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import CPU, HEALTH
from tests.gateway.app_client import AppClient


@pytest.mark.parametrize("route", ["models", "models/x", "health", "stats"])
def test_get_routes_answer_head(ask: AppClient, route: str) -> None:
    ask.reports.update(
        {
            ListModels: [CPU],
            GetModel: CPU,
            GetHealth: HEALTH,
            GetStats: StatsReport(),
        }
    )
    result = ask("HEAD", f"/v1/{route}")
    assert (result.status_code, result.text) == (200, "")


@pytest.mark.parametrize("route", ["load", "unload", "pull"])
def test_a_foreign_page_may_not_change_the_server(ask: AppClient, route: str) -> None:
    result = ask("POST", f"/v1/{route}", {"model_name": "m"}, headers={"Origin": "http://evil.example"})
    is_error(result, 403, "forbidden")
    assert not ask.bus.sent


def test_every_route_has_labels_and_they_are_few(ask: AppClient) -> None:
    create_app(ask.session, DIALECTS)
    routes = ask.session.request_counts.routes
    assert routes["/v1/chat/completions"] == RouteLabels("chat/completions", "openai", inference=True)
    assert routes["/metrics"] == RouteLabels("metrics", "mullama")
    assert len({labels.endpoint for labels in routes.values()}) < MAX_ENDPOINTS
    assert len({labels.dialect for labels in routes.values()}) < MAX_DIALECTS
