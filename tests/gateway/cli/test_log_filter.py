"""Times as people write them, and which lines a filter lets through."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from gateway.cli.log_filter import LogFilter, compile_pattern, parse_moment


@pytest.fixture(autouse=True)
def zone_of_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-26T12:00:00+01:00"),
        ("90s", "2026-11-26T11:58:30+01:00"),
        ("10m", "2026-11-26T11:50:00+01:00"),
        ("-10m", "2026-11-26T11:50:00+01:00"),
        ("10m ago", "2026-11-26T11:50:00+01:00"),
        ("1h30m", "2026-11-26T10:30:00+01:00"),
        ("1.5h", "2026-11-26T10:30:00+01:00"),
        ("2d", "2026-11-24T12:00:00+01:00"),
        ("1w", "2026-11-19T12:00:00+01:00"),
        ("10:00", "2026-11-26T10:00:00+01:00"),
        ("10:00:30", "2026-11-26T10:00:30+01:00"),
        ("10:00Z", "2026-11-26T10:00:00+00:00"),
        ("today", "2026-11-26T00:00:00+01:00"),
        ("yesterday", "2026-11-25T00:00:00+01:00"),
        ("2026-11-20", "2026-11-20T00:00:00+01:00"),
        ("2026-07-01 10:00", "2026-07-01T10:00:00+02:00"),
        ("2026-11-20T10:00Z", "2026-11-20T10:00:00+00:00"),
        ("2026-11-20T10:00-05:00", "2026-11-20T10:00:00-05:00"),
    ],
)
def test_a_time_as_people_write_it(text: str, expected: str) -> None:
    now = datetime.fromisoformat("2026-11-26T12:00:00+01:00")
    assert parse_moment(text, now) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    "text", ["", "soon", "10", "2026", "m", "10x", "1.m", "25:00", "2026-13-01", "999999999w", "0001-01-01"]
)
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text, datetime.fromisoformat("2026-11-26T12:00:00+01:00"))


def test_a_line_without_a_time_is_not_left_out_because_of_its_time() -> None:
    now = datetime.fromisoformat("2026-11-26T12:00:00+01:00")
    assert LogFilter(since=now).matches({"timestamp": "", "line": "x"})
    assert not LogFilter(since=now).matches({"timestamp": "2026-11-26 10:59:59.999", "line": "x"})
    assert not LogFilter(pattern=compile_pattern("y")).matches({"timestamp": "", "line": "x"})
