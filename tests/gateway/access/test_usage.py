"""``GET /internal/usage``: whose usage a key may see, which days are meant, and what is wrong in a query."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gateway.api.operator.usage import UsageQuery, days_of
from protocol.failures import LemonbusError
from protocol.messages.usage import GetUsage, UsageFilter, UsageReport, UsageRow
from tests.gateway.access.conftest import MakeApp
from tests.gateway.access.key_files import bearer, key, store
from tests.gateway.api.error_bodies import is_error

PATH = "/internal/usage"
ROWS = [
    UsageRow("2031-05-01", "ci", "a", 5, 100, 40, 30, 1.25049, {"timeout": 1, "cancelled": 1}),
    UsageRow("2031-05-02", "", "b", 1, 10, 0, 3, 0.5, {"forbidden": 1}),
]


def test_the_answer_has_the_rows_and_their_total(make_app: MakeApp) -> None:
    ask = make_app()
    ask.reports[GetUsage] = UsageReport(ROWS, "usage cannot be written")
    answer = ask("GET", f"{PATH}?month=2031-05&model=a").json
    assert ask.asked(GetUsage)[0].filter == UsageFilter("2031-05-01", "2031-05-31", None, "a")
    assert (answer["first_day"], answer["last_day"], answer["problem"]) == (
        "2031-05-01",
        "2031-05-31",
        "usage cannot be written",
    )
    first, second = answer["rows"]
    assert first == {
        "day": "2031-05-01",
        "key": "ci",
        "model": "a",
        "requests": 5,
        "errors": 1,
        "refusals": 0,
        "cancelled": 1,
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 30,
        "engine_seconds": 1.25,
        "failures": {"timeout": 1, "cancelled": 1},
    }
    assert (second["key"], second["refusals"]) == ("", 1)
    total = answer["total"]
    assert (total["requests"], total["prompt_tokens"], total["errors"], total["refusals"]) == (6, 110, 1, 1)


def test_the_sums_of_all_days_are_asked_for(make_app: MakeApp) -> None:
    ask = make_app()
    ask.reports[GetUsage] = UsageReport([])
    assert ask("GET", f"{PATH}?by_day=false").status_code == 200
    assert ask("GET", PATH).status_code == 200
    assert [each.filter.by_day for each in ask.asked(GetUsage)] == [False, True]


@pytest.mark.parametrize(
    ("name", "query", "asked_for"),
    [
        ("root", "", None),
        ("root", "?key=other", "other"),
        ("root", "?key=", ""),
        ("ci", "", "ci"),
        ("ci", "?key=ci", "ci"),
        ("ci", "?key=other", 403),
        ("ci", "?key=", 403),
        ("watch", "", 403),
    ],
)
def test_an_administrator_sees_all_and_a_key_itself(
    make_app: MakeApp, tmp_path: Path, name: str, query: str, asked_for: Any
) -> None:
    store(tmp_path, key("root", scopes=["admin"]), key("ci"), key("watch", scopes=["metrics"]))
    app = make_app()
    app.reports[GetUsage] = UsageReport(ROWS[:1], "usage cannot be written: /var/lib is full")
    result = app("GET", PATH + query, headers=bearer(name))
    if asked_for == 403:
        is_error(result, 403, "forbidden")
        assert not app.asked(GetUsage)
    else:
        assert result.status_code == 200
        assert app.asked(GetUsage)[0].filter.api_key == asked_for
        assert bool(result.json["problem"]) == (name == "root"), "a client sees no path of the machine"


@pytest.mark.parametrize(
    ("query", "days"),
    [
        (UsageQuery(), ("2031-12-01", "2031-12-31")),
        (UsageQuery(since="2031-11-30"), ("2031-11-30", "2031-12-31")),
        (UsageQuery(since="2032-06-01"), ("2032-06-01", "2032-06-01")),
        (UsageQuery(month="2031-12"), ("2031-12-01", "2031-12-31")),
        (UsageQuery(month="2028-02"), ("2028-02-01", "2028-02-29")),
        (UsageQuery(month="9999-12"), ("9999-12-01", "9999-12-31")),
    ],
)
def test_the_days_that_are_meant(query: UsageQuery, days: tuple[str, str]) -> None:
    assert days_of(query, date(2031, 12, 31)) == days


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        (UsageQuery(since="May"), "since", "a day looks like 2031-05-01"),
        (UsageQuery(month="2031"), "month", "a month looks like 2031-05"),
        (UsageQuery(month="2031-13"), "month", "a month looks like 2031-05"),
        (UsageQuery(since="2031-05-01", month="2031-05"), "month", "give either since or month"),
    ],
)
def test_anything_but_a_day_or_a_month_is_refused(query: UsageQuery, field: str, message: str) -> None:
    with pytest.raises(LemonbusError) as refused:
        days_of(query, date(2031, 5, 17))
    assert (refused.value.failure.http_status, refused.value.failure.param) == (400, field)
    assert refused.value.failure.message == message
