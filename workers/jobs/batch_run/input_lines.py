"""The requests of a batch: read line by line, checked, never held all at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol.batches.batch_store import MAX_LINES, BatchProblem
from protocol.failures import DECODE_ERRORS, printable

MAX_PROBLEMS: Final = 100
"""Of a batch; the rest is not shown."""
_MAX_ID: Final = 512
MAX_NUMBER: Final = 2 * MAX_LINES
"""No line beyond it is left out because it is blank: a file of nothing else would be read for minutes."""


class InputLine(msgspec.Struct, frozen=True):
    """A line of the file."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _BodyFields(msgspec.Struct, frozen=True):
    """What must be known of a request before it is sent."""

    model: str = ""
    stream: bool | None = None
    background: bool | None = None


class BatchLine(NamedTuple):
    """A request that can be sent. ``number`` counts from 1."""

    number: int
    custom_id: str
    model: str
    body: bytes


_decode: Final = msgspec.json.Decoder(InputLine).decode
_decode_fields: Final = msgspec.json.Decoder(_BodyFields).decode


class LineError(Exception):
    """What is wrong with a line."""

    def __init__(self, code: str, message: str, param: str = "") -> None:
        """``param``: the field that is wrong."""
        super().__init__(message)
        self.code, self.param = code, param


def read_lines(path: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1. Of one longer than ``most`` bytes, only its beginning."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(most + 1):
            number += 1
            if len(line) > most and not line.endswith(b"\n"):
                while (rest := file.readline(most)) and not rest.endswith(b"\n"):
                    pass
            if line.strip() or number > MAX_NUMBER:
                yield number, line


def parse_line(number: int, line: bytes, endpoint: str, most: int) -> BatchLine:
    """Return the request of a line; raises :class:`LineError`. ``endpoint``: the batch's. ``most``: bytes of a line."""
    if len(line) > most:
        raise LineError("line_too_long", f"the line is longer than {most} bytes, the most that a request may have")
    try:
        line.decode()
        found = _decode(line)
    except msgspec.ValidationError as problem:
        raise LineError("invalid_request", f"the line is not a request of a batch: {problem}") from None
    except DECODE_ERRORS as problem:
        raise LineError("invalid_json_line", f"the line cannot be read: {problem}") from None
    if not 0 < len(found.custom_id) <= _MAX_ID:
        raise LineError("invalid_custom_id", f"`custom_id` must have 1 to {_MAX_ID} characters", "custom_id")
    if found.method != "POST":
        raise LineError("invalid_method", "`method` must be POST", "method")
    if found.url != endpoint:
        shown = printable(found.url)
        raise LineError("mismatched_endpoint", f"`url` is {shown}, and the batch is for {endpoint}", "url")
    try:
        fields = _decode_fields(found.body)
    except DECODE_ERRORS as problem:
        raise LineError("invalid_body", f"`body` is not a request: {problem}", "body") from None
    for name in ("stream", "background"):
        if getattr(fields, name):
            raise LineError("invalid_body", f"a request of a batch cannot have `{name}`", f"body.{name}")
    return BatchLine(number, found.custom_id, fields.model, bytes(found.body))


def check_input(path: Path, endpoint: str, most: int) -> tuple[int, list[BatchProblem]]:
    """Return how many requests a file has, and what is wrong with them."""
    seen: set[str] = set()
    problems: list[BatchProblem] = []
    for number, line in read_lines(path, most):
        try:
            custom_id = parse_line(number, line, endpoint, most).custom_id
            if custom_id in seen:
                raise LineError("duplicate_custom_id", f"`custom_id` {printable(custom_id)} is used twice", "custom_id")  # noqa: TRY301 - as the others
            seen.add(custom_id)
        except LineError as problem:
            problems.append(BatchProblem(problem.code, str(problem), number, problem.param))
        if len(problems) >= MAX_PROBLEMS or len(seen) > MAX_LINES:
            break
    if len(seen) > MAX_LINES:
        problems.append(BatchProblem("too_many_requests", f"a batch may have at most {MAX_LINES} requests"))
    if not seen and not problems:
        problems.append(BatchProblem("empty_file", "the file has no requests"))
    return len(seen), problems
