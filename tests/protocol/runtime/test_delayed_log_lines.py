"""Log lines that wait a moment for each other: their order, their writes, and what ends the wait."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.runtime import logs
from protocol.runtime.log_output import MAX_LINE_BYTES

ROOT = Path(logs.__file__).parents[2]
BEGIN = "logs.configure('gateway', 'info', 'json'); due = []; logs.set_batching(due.append); log = logs.get_logger()\n"


def writes_of(script: str) -> list[list[dict[str, Any]]]:
    """Run a script; return what it wrote to stderr, each write its lines."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            command = [sys.executable, "-c", f"from protocol.runtime import logs\n{BEGIN}{script}"]
            subprocess.run(command, cwd=ROOT, stderr=theirs, timeout=20, check=True)
        written = []
        while piece := ours.recv(1 << 20):
            assert len(piece) <= MAX_LINE_BYTES
            assert piece.endswith(b"\n")
            written.append([json.loads(line) for line in piece.splitlines()])
        return written


def events(written: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[line["event"] for line in lines] for lines in written]


def test_delayed_lines_are_written_together_on_wake_up() -> None:
    written = writes_of(
        "for number in range(3): logs.log_batched('info', str(number), {'request_id': f'r{number}'})\n"
        "assert len(due) == 1; log.info('first'); logs.log_batched('info', 'last', {}); due[0](); due[0]()"
    )
    assert events(written) == [["0", "1", "2", "first"], ["last"]], "another line goes after them, at once"
    assert [line.get("request_id") for line in written[0]] == ["r0", "r1", "r2", None]


def test_many_lines_are_written_in_pieces_that_a_pipe_keeps_whole() -> None:
    written = writes_of(
        "for n in range(20): logs.log_batched('info', str(n), {'f': 'x' * (n * 100)})\nlogs.set_batching(None)"
    )
    assert [event for lines in events(written) for event in lines] == [str(number) for number in range(20)]
    assert 5 < len(written) < 10


def test_a_bounded_number_of_lines_waits() -> None:
    written = writes_of("for n in range(logs.MAX_BATCHED_LINES): logs.log_batched('info', 'x', {})")
    assert sum(map(len, written)) == logs.MAX_BATCHED_LINES


def test_delayed_lines_have_the_time_and_the_request_of_their_call() -> None:
    (lines,) = writes_of(
        "logs.log_batched('info', 'early', {}); import time; time.sleep(0.05); logs.bind_request_id('another'); log.info('late')"
    )
    assert lines[0]["ts"] < lines[1]["ts"]
    assert [line.get("request_id") for line in lines] == [None, "another"]


def test_dropped_lines_are_counted() -> None:
    script = (
        "import os; full = os.pipe(); os.set_blocking(full[1], False)\n"
        "try:\n    while True: os.write(full[1], bytes(4096))\nexcept BlockingIOError: pass\n"
        "real = os.dup(2); os.dup2(full[1], 2)\n"
        "for n in range(5): logs.log_batched('info', 'lost', {})\ndue[0](); os.dup2(real, 2); log.info('next')"
    )
    ((line,),) = writes_of(script)
    assert (line["event"], line["dropped"]) == ("next", 5)


@pytest.fixture
def waking(records: list[dict[str, Any]]) -> Iterator[list[Callable[[], None]]]:
    due: list[Callable[[], None]] = []
    logs.configure("gateway", "info", "json")
    logs.set_batching(due.append)
    yield due
    logs.set_batching(None)
    assert records is not None


def test_lines_below_the_level_are_not_delayed(waking: list[Callable[[], None]], records: list[dict[str, Any]]) -> None:
    logs.log_batched("debug", "x", {})
    assert not waking
    logs.log_batched("warning", "y", {"prompt": "secret"})
    assert len(waking) == 1
    assert not records
    logs.configure("gateway", "debug", "json")
    assert [(record["level"], record["event"]) for record in records] == [("warning", "y")]
    assert "secret" not in str(records)


def test_without_a_waker_no_line_is_delayed(records: list[dict[str, Any]]) -> None:
    logs.configure("gateway", "info", "json")
    logs.log_batched("info", "x", {"path": "/live"})
    assert [(record["event"], record["path"]) for record in records] == [("x", "/live")]
