"""``lemonbus usage``: what it asks for, and its table, its CSV and its JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

ASKED = "/internal/usage"
FIGURES = {
    "requests": 5,
    "errors": 1,
    "refusals": 2,
    "cancelled": 0,
    "prompt_tokens": 100,
    "cached_tokens": 40,
    "output_tokens": 30,
    "engine_seconds": 1.25,
    "failures": {"timeout": 1, "rate_limit_exceeded": 2},
}


def answer(**more: Any) -> dict[str, Any]:
    rows = [
        {"day": "2031-05-01", "key": "ci", "model": "a", **FIGURES},
        {"day": "2031-05-02", "key": "ci", "model": "a", **FIGURES},
        {"day": "2031-05-02", "key": "", "model": "=b", **FIGURES, "prompt_tokens": 1000},
    ]
    total = {**FIGURES, "requests": 15, "prompt_tokens": 1200}
    return {"first_day": "2031-05-01", "last_day": "2031-05-31", "rows": rows, "total": total, **more}


def test_the_table_has_a_row_for_each_key_and_model_and_the_total(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["GET", f"{ASKED}?by_day=false"] = Reply(answer())
    code, out, err = lemonbus("usage")
    head, *rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "From 2031-05-01 to 2031-05-31, in UTC.\n")
    assert head[:3] == ["KEY", "MODEL", "REQUESTS"]
    assert rows == [
        ["-", "=b", "5", "1", "2", "0", "1000", "40", "30", "1.2"],
        ["ci", "a", "10", "2", "4", "0", "200", "80", "60", "2.5"],
        ["total", "15", "1", "2", "0", "1200", "40", "30", "1.2"],
    ]


def test_a_spreadsheet_gets_a_line_for_each_day_and_no_formula(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["GET", ASKED] = Reply(answer())
    code, out, _ = lemonbus("usage", "--csv")
    head, *rows = csv.reader(io.StringIO(out))
    assert code == 0
    assert head[:4] == ["day", "key", "model", "requests"]
    assert rows[0] == ["2031-05-01", "ci", "a", "5", "1", "2", "0", "100", "40", "30", "1.25"]
    assert rows[2][:3] == ["2031-05-02", "", "'=b"]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("+1+2", "'+1+2"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ('a, "b"', 'a, "b"'),
        ("é/ü:1", "é/ü:1"),
    ],
)
def test_a_name_is_one_cell_and_no_formula(lemonbus: Ends, server: FakeServer, name: str, cell: str) -> None:
    rows = [{"day": "2031-05-01", "key": name, "model": name, **FIGURES}]
    server.replies["GET", ASKED] = Reply(answer(rows=rows))
    _, row = csv.reader(io.StringIO(lemonbus("usage", "--csv")[1]))
    assert row[1:3] == [cell, cell]


def test_scripts_get_the_answer_itself(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["GET", ASKED] = Reply(answer())
    assert json.loads(lemonbus("usage", "--json")[1]) == answer(problem="")


def test_what_is_wrong_with_the_disk_is_said(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["GET", ASKED] = Reply(answer(problem="usage cannot be written"))
    code, _, err = lemonbus("usage", "--csv")
    assert (code, err) == (0, "lemonbus: usage cannot be written\n")


def test_the_server_selects(lemonbus: Ends, server: FakeServer) -> None:
    for options, query in (
        (("--csv", "--key", "ci", "--model", "a b", "--month", "2031-04"), "?key=ci&model=a+b&month=2031-04"),
        (("--json", "--key", "", "--since", "2031-05-01"), "?key=&since=2031-05-01"),
        (("--key", "ci"), "?key=ci&by_day=false"),
    ):
        lemonbus("usage", *options)
        assert server.asked[-1][:2] == ("GET", ASKED + query)


@pytest.mark.parametrize("options", [("--csv", "--json"), ("--since", "2031-05-01", "--month", "2031-05")])
def test_options_that_exclude_each_other(lemonbus: Ends, options: tuple[str, ...]) -> None:
    code, _, err = lemonbus("usage", *options)
    assert code == 2
    assert "Give either" in err
