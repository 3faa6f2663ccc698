"""Rules that hold for all documented routes."""

from __future__ import annotations

import pytest

from protocol.messages import admin
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import CPU, HEALTH
from tests.gateway.app_client import AppClient


@pytest.mark.parametrize("route", ["models", "models/x", "health", "stats"])
def test_get_routes_answer_head(ask: AppClient, route: str) -> None:
    ask.reports.update(
        {
            admin.ListModels: [CPU],
            admin.GetModel: CPU,
            admin.GetHealth: HEALTH,
            admin.GetStats: admin.StatsReport(),
        }
    )
    result = ask("HEAD", f"/v1/{route}")
    assert (result.status_code, result.text) == (200, "")


@pytest.mark.parametrize("route", ["load", "unload", "pull"])
def test_a_foreign_page_may_not_change_the_server(ask: AppClient, route: str) -> None:
    result = ask("POST", f"/v1/{route}", {"model_name": "m"}, headers={"Origin": "http://evil.example"})
    is_error(result, 403, "forbidden")
    assert not ask.bus.sent
