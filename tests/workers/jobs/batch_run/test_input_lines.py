"""The lines of a batch's file: which of them are requests, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.batches.batch_store import MAX_LINES
from workers.jobs.batch_run.input_lines import MAX_PROBLEMS, check_input, read_lines

CHAT = "/v1/chat/completions"
LONGEST = 1000


def line(number: int = 1, **other: Any) -> bytes:
    fields = {"custom_id": str(number), "method": "POST", "url": CHAT, "body": {"messages": []}}
    return json.dumps({**fields, **other}).encode()


def check(folder: Path, content: bytes) -> tuple[int, list[tuple[str, int]]]:
    file = folder / "input.jsonl"
    file.write_bytes(content)
    number, problems = check_input(file, CHAT, LONGEST)
    return number, [(problem.code, problem.line) for problem in problems]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"x", "invalid_json_line"),
        (b"\xff" + line(), "invalid_json_line"),
        (b"[]", "invalid_request"),
        (line(custom_id=""), "invalid_custom_id"),
        (line(method="GET"), "invalid_method"),
        (line(url="/v1/embeddings"), "mismatched_endpoint"),
        (line(body=1), "invalid_body"),
        (line(body={"stream": True}), "invalid_body"),
        (line(body={"background": True}), "invalid_body"),
        (line(body={"prompt": "x" * LONGEST}), "line_too_long"),
        (line(1), "duplicate_custom_id"),
    ],
)
def test_a_wrong_line_is_named(content: bytes, problem: str, tmp_path: Path) -> None:
    assert check(tmp_path, line(1) + b"\n\n" + content + b"\n" + line(2)) == (2, [(problem, 3)])


def test_a_batch_needs_a_request_and_has_a_limit(tmp_path: Path) -> None:
    assert check(tmp_path, b"\n \n") == (0, [("empty_file", 0)])
    too_many = b"\n".join(map(line, range(MAX_LINES + 2)))
    assert check(tmp_path, too_many)[1] == [("too_many_requests", 0)]


def test_problems_are_counted_up_to_a_limit(tmp_path: Path) -> None:
    assert len(check(tmp_path, b"x\n" * (MAX_PROBLEMS + 1))[1]) == MAX_PROBLEMS


def test_a_file_of_blank_lines_is_not_read_to_its_end(tmp_path: Path) -> None:
    number, problems = check(tmp_path, line(1) + 4 * MAX_LINES * b"\n")
    assert number == 1
    assert problems[0] == ("invalid_json_line", 2 * MAX_LINES + 1)
    assert len(problems) == MAX_PROBLEMS


def test_of_a_long_line_only_its_beginning_is_read(tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    file.write_bytes(b"x" * (10 * LONGEST) + b"\n" + line(2))
    assert [(number, len(text)) for number, text in read_lines(file, LONGEST)] == [(1, LONGEST + 1), (2, len(line(2)))]
