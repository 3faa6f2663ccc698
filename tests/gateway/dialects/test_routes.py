"""What all routes of the documents have in common."""

from __future__ import annotations

import pytest

from protocol import admin
from tests.gateway.answering import Answering
from tests.gateway.dialects.errors import is_error
from tests.gateway.dialects.reports import CPU, HEALTH


@pytest.mark.parametrize("route", ["models", "models/x", "health", "stats"])
def test_get_routes_answer_head(ask: Answering, route: str) -> None:
    ask.reports.update(
        {
            admin.ListModels: [CPU],
            admin.GetModel: CPU,
            admin.GetHealth: HEALTH,
            admin.GetStats: admin.Stats(),
        }
    )
    result = ask("HEAD", f"/v1/{route}")
    assert (result.status_code, result.text) == (200, "")


@pytest.mark.parametrize("route", ["load", "unload", "pull"])
def test_a_foreign_page_may_not_change_the_server(ask: Answering, route: str) -> None:
    result = ask("POST", f"/v1/{route}", {"model_name": "m"}, headers={"Origin": "http://evil.example"})
    is_error(result, 403, "forbidden")
    assert not ask.line.sent
