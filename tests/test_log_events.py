"""`docs/log-events.md` has each event that the code logs, with its level and fields, and no other; each warning says what to do."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from tests.support.log_calls import LoggedEvent, logged_events, printed_lines
from tests.support.source_code import FILES, ROOT

PAGE: Final = (ROOT / "docs" / "log-events.md").read_text()
SEVERE: Final = frozenset({"warning", "error", "critical"})
BEFORE_THE_LOG: Final = [*sorted((ROOT / "supervisor" / "keeper").glob("*.py")), ROOT / "supervisor/lifecycle/main.py"]


class Row(NamedTuple):
    """A row of the page."""

    event: str
    levels: set[str]
    fields: set[str]
    meaning: str
    advice: str


@cache
def logged() -> tuple[dict[str, LoggedEvent], list[str]]:
    return logged_events()


def rows() -> list[Row]:
    found = re.findall(r"^\| `([^|]+)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
    return [
        Row(event, set(re.findall(r"\w+", levels)), set(re.findall(r"\w+", fields)), meaning.strip(), advice.strip())
        for event, levels, fields, meaning, advice in found
    ]


def test_each_event_can_be_read_in_the_source() -> None:
    """A call of a logger has a literal text, or several to choose from, so that it can be documented and searched for."""
    assert logged()[1] == []


def test_the_page_has_each_event_once() -> None:
    documented = [row.event for row in rows()]
    assert len(documented) == len(set(documented))
    missing = {event: sorted(found.files) for event, found in logged()[0].items() if event not in documented}
    assert missing == {}, "docs/log-events.md lacks a row: what the event means, and what an operator does"
    assert set(documented) - logged()[0].keys() == set(), "nothing logs these"


def test_levels_and_fields_are_those_of_the_code() -> None:
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in FILES)))
    for row in rows():
        found = logged()[0][row.event]
        if row.event != "request":  # whose level depends on the answer
            assert row.levels == found.levels, row.event
        assert found.fields - row.fields == set(), f"{row.event}: a field is missing"
        assert row.fields <= words, row.event
        assert not row.fields & {"why", "problem", "how"}, f"{row.event}: this field is `reason` in every line"


def test_each_row_says_what_it_means_and_a_warning_what_to_do() -> None:
    assert [row.event for row in rows() if not row.meaning or (row.levels & SEVERE and not row.advice)] == []


def test_the_page_has_each_line_before_there_is_a_log() -> None:
    table = PAGE.split("## Lines before there is a log\n")[1]
    documented = set(re.findall(r"^\| `([^|]+)` \|", table, re.MULTILINE))
    assert documented == {line for path in BEFORE_THE_LOG for line in printed_lines(path)}


def test_a_row_can_be_understood_without_its_neighbours() -> None:
    """A reader searches for one event."""
    assert [
        row.event
        for row in rows()
        if re.match(r"(The same|As) ?\b", row.meaning) or re.match(r"(The same|As above)", row.advice)
    ] == []
