"""Log lines: their keys, levels, bounds, and what happens when no process reads them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.log_output import CUT_MARK, MAX_LINE_BYTES, MAX_RECORD_BYTES, DropCounter, fit_record
from tests.support.properties import examples

ROOT = Path(logs.__file__).parents[2]


def encoded(record: dict[str, Any]) -> bytes:
    return fit_record(record)[1]


def stderr_of(script: str, *, stderr: int = subprocess.PIPE) -> tuple[int, bytes]:
    run = subprocess.run(
        [sys.executable, "-c", f"from protocol.runtime import logs\n{script}"],
        cwd=ROOT,
        stderr=stderr,
        stdout=subprocess.PIPE,
        timeout=20,
        check=False,
    )
    return run.returncode, run.stderr or b""


def test_a_line_has_the_documented_keys_in_order(records: list[dict[str, Any]]) -> None:
    logs.configure("worker", "info", "json")
    logs.get_logger(model="m", worker="w1").info("ready", request_id="r", seconds=0.5)
    (record,) = records
    assert list(record)[:5] == ["ts", "level", "process", "pid", "event"]
    assert record["process"] == "worker"
    assert record["pid"] == os.getpid()
    assert {key: record[key] for key in ("model", "worker", "request_id", "seconds")} == {
        "model": "m",
        "worker": "w1",
        "request_id": "r",
        "seconds": 0.5,
    }


def test_a_field_may_name_another_process(records: list[dict[str, Any]]) -> None:
    logs.configure("worker", "info", "json")
    logs.get_logger().warning("50% of the engine's words", process="engine", pid=7)
    assert (records[0]["process"], records[0]["pid"]) == ("engine", 7)
    assert records[0]["event"] == "50% of the engine's words"


def test_a_line_of_a_process_elsewhere_names_its_node(records: list[dict[str, Any]]) -> None:
    for node in ("gpu2", HEAD):
        logs.configure("worker", "info", "json", node)
        logs.get_logger().info("ready")
        logs.log_batched("info", "request", {"status": 200})
    logs.get_logger().info("node drained", node="gpu3")
    assert [record.get("node") for record in records] == ["gpu2", "gpu2", None, None, "gpu3"]


@pytest.mark.parametrize("least", logs.LEVEL_RANK)
def test_each_of_the_six_levels_shows_its_own_and_higher_ones(least: str, records: list[dict[str, Any]]) -> None:
    logs.configure("gateway", least, "json")
    log = logs.get_logger()
    for level in logs.LEVEL_RANK:
        getattr(log, level)("said")
    assert [record["level"] for record in records] == [
        level for level, rank in logs.LEVEL_RANK.items() if rank >= logs.LEVEL_RANK[least]
    ]
    assert logs.trace_enabled() == (least == "trace")


def test_a_level_that_changes_applies_to_loggers_that_exist(records: list[dict[str, Any]]) -> None:
    logs.set_level("")
    logs.configure("worker", "warning", "json")
    bound = logs.get_logger().bind(model="m")
    for level in ("info", "warning", "trace", "debug"):
        logs.set_level(level)
        bound.debug("bound", at=level)
        logs.log_batched("info", "batched", {"at": level})
        assert logs.debug_enabled() == (level in ("trace", "debug"))
    logs.set_level("")
    bound.debug("bound", at="the same")
    assert [(each["event"], each["at"]) for each in records] == [
        ("batched", "info"),
        ("bound", "trace"),
        ("batched", "trace"),
        ("bound", "debug"),
        ("batched", "debug"),
        ("bound", "the same"),
    ]


def test_only_trace_shows_prompts(records: list[dict[str, Any]]) -> None:
    logs.configure("gateway", "trace", "json")
    log = logs.get_logger()
    for level in logs.LEVEL_RANK:
        getattr(log, level)("asked", prompt="secret", messages=["secret"], input="secret", body="secret", model="m")
    shown = {record["level"] for record in records if "secret" in json.dumps(record)}
    assert shown == {"trace"}
    assert all(record["model"] == "m" for record in records)


def test_trace_survives_bind_and_formats_arguments(records: list[dict[str, Any]]) -> None:
    logs.configure("gateway", "trace", "json")
    logs.get_logger().bind(request_id="r").trace("%d tokens", 3)
    assert (records[0]["event"], records[0]["request_id"]) == ("3 tokens", "r")


def test_an_exception_is_one_field_and_its_end_survives(records: list[dict[str, Any]]) -> None:
    logs.configure("gateway", "info", "json")
    problem = ValueError("x" * 9000 + "the end")
    logs.get_logger().error("failed", exc_info=problem)
    assert records[0]["level"] == "error"
    assert records[0]["exception"].startswith(CUT_MARK)
    assert records[0]["exception"].endswith("the end")


def test_an_uncaught_exception_is_a_line_too() -> None:
    code, stderr = stderr_of("logs.configure('worker', 'info', 'json'); raise OSError('lost')")
    record = json.loads(stderr)
    assert code == 1
    assert (record["level"], record["event"]) == ("critical", "uncaught exception")
    assert "OSError: lost" in record["exception"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=50) | st.builds(object),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(), inner, max_size=5),
    max_leaves=20,
)


@examples(50)
@given(st.dictionaries(st.text(), anything))
def test_anything_becomes_one_bounded_json_line(record: dict[str, Any]) -> None:
    line = encoded(record)
    assert len(line) <= MAX_RECORD_BYTES
    assert b"\n" not in line
    assert isinstance(json.loads(line), dict)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        "\x00" * 5000,
        "ü" * 5000,
        "\\" * 5000,
        10**30,
        10**4200,
        10**5000,
        float("nan"),
        list(range(5000)),
        {"a": "b" * 9000},
        {("a", "b"): 1},
        nested(100_000),
        Unspeakable(),
        b"\xff" * 9000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_value_is_too_long_or_too_strange(value: Any) -> None:
    line = encoded({"ts": "t", "level": "info", "process": "p", "pid": value, "event": value, "more": value})
    assert len(line) <= MAX_RECORD_BYTES
    assert json.loads(line)["level"] == "info"


def test_a_thousand_fields_leave_the_first_and_a_mark() -> None:
    record = {"ts": "t", "level": "info", "model": "m"} | {f"field{number}": number for number in range(1000)}
    assert json.loads(encoded(record)) == {"ts": "t", "level": "info", "model": "m", "cut": "1003 fields"}


def test_short_fields_are_not_cut_and_long_ones_are_marked() -> None:
    record = json.loads(encoded({"event": "short", "detail": "y" * 10_000}))
    assert record["event"] == "short"
    assert record["detail"].endswith(CUT_MARK)
    assert len(record["detail"]) > 1000


def test_a_full_sink_costs_records_and_the_next_one_says_how_many() -> None:
    free_bytes = [True, False, False, True, True, False, True]
    got: list[dict[str, Any]] = []

    def send(record: bytes) -> bool:
        free = free_bytes.pop(0)
        if free:
            assert len(record) < MAX_LINE_BYTES
            got.append(json.loads(record))
        return free

    sink = DropCounter(send)
    for number in range(7):
        sink(encoded({"event": str(number), "filler": "z" * 9000}))
    assert [(record["event"], record.get("dropped", 0)) for record in got] == [("0", 0), ("3", 2), ("4", 0), ("6", 1)]
    assert sink.dropped == 3


def test_a_reader_of_stderr_that_stopped_does_not_stop_us() -> None:
    read, write = os.pipe()
    script = (
        "logs.configure('worker', 'info', 'json'); log = logs.get_logger()\n"
        "for number in range(2000): log.info('line', number=number, filler='f' * 1000)\n"
        "import os, sys; print(len(os.read(int(sys.argv[1]), 1 << 20))); log.info('again')"
    )
    run = subprocess.run(
        [sys.executable, "-c", f"from protocol.runtime import logs\n{script}", str(read)],
        cwd=ROOT,
        stderr=write,
        stdout=subprocess.PIPE,
        pass_fds=[read],
        timeout=20,
        check=True,
    )
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        last = json.loads(pipe.read())
    assert int(run.stdout) > MAX_LINE_BYTES
    assert last["event"] == "again"
    assert last["dropped"] > 1000


def test_a_closed_stderr_does_no_harm() -> None:
    read, write = os.pipe()
    os.close(read)
    code, _ = stderr_of("logs.configure('worker', 'info', 'json'); logs.get_logger().info('x')", stderr=write)
    os.close(write)
    assert code == 0


def test_a_terminal_gets_readable_lines_without_foreign_escape_sequences() -> None:
    ours, theirs = pty.openpty()
    code, _ = stderr_of(
        "logs.configure('worker', 'info'); logs.get_logger().info('ready', model='m\\x1b[2J')", stderr=theirs
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert code == 0
    assert "ready" in shown
    assert not shown.startswith("{")
    assert "\x1b[2J" not in shown
    assert "\\x1b[2J" in shown


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_text_of_a_client_cannot_change_how_lines_are_shown(style: str) -> None:
    """U+202E reverses the order of the following text; a line feed would begin a line that looks like another record."""
    script = (
        f"logs.configure('gateway', 'info', {style!r});"
        " fields = {'path': '/\\u202etxt.exe\\x9b2J\\u2028', 'reason': 'a\\nerror forged', 'more': ['\\u202e']};"
        " logs.get_logger().info('request \\u202e', **fields);"
        " logs.log_batched('info', 'request', fields)"
    )
    code, written = stderr_of(script)
    shown = written.decode().removesuffix("\n").split("\n")
    assert (code, len(shown)) == (0, 2), written
    assert all(line.isprintable() for line in shown), shown
    assert all("\\u202etxt.exe" in line for line in shown)
    if style == "json":
        assert json.loads(shown[0])["path"] == "/\u202etxt.exe\x9b2J\u2028"


def test_a_console_line_is_bounded_and_marked() -> None:
    script = "logs.configure('worker', 'info', 'console'); logs.get_logger().info('x', **{f'k{n}': 'ü' * 90 for n in range(40)})"
    _, shown = stderr_of(script)
    assert len(shown) <= MAX_LINE_BYTES
    assert CUT_MARK in shown.decode()


def test_rich_and_asyncio_are_not_imported_for_us_but_still_can_be() -> None:
    script = """
import sys
assert not {"rich", "asyncio"} & set(sys.modules)
import structlog
future = structlog.stdlib.asyncio.Future
import asyncio, rich
assert asyncio.Future is future
sys.exit(5)
"""
    code, stderr = stderr_of(script)
    assert (code, stderr) == (5, b"")
