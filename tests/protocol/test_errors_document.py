"""`docs/errors.md` has each code of the vocabulary, with its status and whether a client may repeat the request."""

from __future__ import annotations

import re
from pathlib import Path

from protocol.failures import HTTP_ERRORS, RETRIABLE, Code, Failure

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "errors.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (no|yes|tried) \| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def again(code: Code) -> str:
    """Return the word of the column; a quota is refused for so long that clients are told not to repeat it."""
    if Failure(code, "").final or code is Code.QUOTA:
        return "no"
    return "tried" if code in RETRIABLE else "yes"


def test_the_page_has_each_code_with_its_status_and_whether_to_repeat_it() -> None:
    documented = [(code, int(status), word) for code, status, word, *_ in ROW.findall(PAGE)]
    assert sorted(documented) == sorted((code.value, HTTP_ERRORS[code].status, again(code)) for code in Code)


def test_a_failure_of_the_server_says_what_an_operator_does() -> None:
    assert [
        row[0]
        for row in ROW.findall(PAGE)
        if int(row[1]) >= 500 and row[0] != "unsupported_operation" and not row[5].strip()
    ] == []
