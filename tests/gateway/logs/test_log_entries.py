"""Log entries and their form, subscriptions, and the backlog of a slow reader."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gateway.logs import log_entries
from gateway.logs.log_entries import LogBacklog, LogQuery, parse_query, parse_subscription, render_entry
from protocol.failures import Code, LemonbusError
from protocol.messages.log_stream import FollowLogs, LogBatch, LogEntry
from protocol.runtime.logs import SEVERITY

RECORD: dict[str, Any] = {
    "ts": "2025-03-30T14:22:01.123Z",
    "level": "info",
    "process": "worker",
    "pid": 7,
    "event": "model loaded",
    "model": "m",
    "seconds": 0.5,
    "why": "asked for",
    "nothing": None,
}


def entry(seq: int = 1, /, **changes: Any) -> LogEntry:
    return LogEntry(seq, json.dumps(RECORD | changes).encode())


def test_an_entry_has_the_documented_fields_and_ours() -> None:
    got = json.loads(render_entry(entry(1043)))
    assert got == {
        "seq": 1043,
        "timestamp": "2025-03-30 14:22:01.123",
        "severity": "Info",
        "tag": "Worker",
        "line": '2025-03-30 14:22:01.123 [Info] (Worker) model loaded model=m seconds=0.5 why="asked for"',
        **RECORD,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", got["timestamp"])


@pytest.mark.parametrize(("level", "severity"), SEVERITY.items())
def test_severities_are_the_documents(level: str, severity: str) -> None:
    got = json.loads(render_entry(entry(level=level)))
    assert (got["severity"], got["level"]) == (severity, level)
    assert f"[{severity}]" in got["line"]


def test_a_line_is_one_line_and_commands_no_terminal() -> None:
    event = "a\nb\x1b[2J\x9b \u202etxt.exe\u2066\u200b"
    rendered = render_entry(entry(event=event, exception="Traceback\n  file"))
    assert rendered.decode().isprintable(), "nor does the JSON"
    got = json.loads(rendered)
    assert got["line"].isprintable()
    assert "\\u202etxt.exe\\u2066" in got["line"]
    assert got["event"] == event


def test_an_entry_has_the_number_of_dropped_ones_before_it() -> None:
    assert json.loads(render_entry(entry(dropped=3), 4))["dropped"] == 7
    assert json.loads(render_entry(entry(), 4))["dropped"] == 4
    assert "dropped" not in json.loads(render_entry(entry()))


def test_a_record_cannot_speak_for_the_stream() -> None:
    got = json.loads(render_entry(entry(5, seq=99, severity="Loud", line="forged", tag="x", timestamp="then")))
    assert (got["seq"], got["severity"], got["tag"], got["timestamp"]) == (
        5,
        "Info",
        "Worker",
        RECORD["ts"].replace("T", " ")[:-1],
    )
    assert got["line"].startswith("2025-03-30 14:22:01.123 [Info] (Worker)")


@pytest.mark.parametrize("fields", [b"", b"nonsense", b"[]", b"\xff", b"{}", b'{"level": 5, "process": null}'])
def test_any_log_record_becomes_an_entry(fields: bytes) -> None:
    got = json.loads(render_entry(LogEntry(1, fields)))
    assert set(got) >= {"seq", "timestamp", "severity", "tag", "line"}


@pytest.mark.parametrize(
    ("message", "query", "call"),
    [
        ({}, {}, FollowLogs(4)),
        ({"after_seq": None}, {}, FollowLogs(4)),
        ({"after_seq": 1042, "boot": "b"}, {}, FollowLogs(4, 1042, "b")),
        ({"after_seq": 0}, {}, FollowLogs(4, 0)),
        ({}, {"after_seq": "1042", "boot": "b"}, FollowLogs(4, 1042, "b")),
        ({"after_seq": 7}, {"after_seq": "1042"}, FollowLogs(4, 7)),
        ({"after_seq": None}, {"after_seq": "1042"}, FollowLogs(4, 1042)),
        ({"nonsense": 1}, {"after_seq": ""}, FollowLogs(4)),
        ({}, {"model": "m", "level": "Warning"}, FollowLogs(4, model="m", level="warning")),
        ({"model": "n", "level": "Fatal"}, {"model": "m"}, FollowLogs(4, model="n", level="critical")),
        ({"request_id": "r", "process": "engine"}, {"process": "x"}, FollowLogs(4, request_id="r", process="engine")),
    ],
)
def test_filters_come_from_the_message_or_the_address(
    message: dict[str, Any], query: dict[str, str], call: FollowLogs
) -> None:
    assert parse_subscription(4, json.dumps({"type": "logs.subscribe"} | message), parse_query(query)) == call


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("", ""),
        ("{", ""),
        ("[]", ""),
        ('"logs.subscribe"', ""),
        ("[" * 5000, ""),
        (b"\xff\x00", ""),
        ("\ud800", ""),
        ("{}", "type"),
        ('{"type": "nonsense"}', "type"),
        ('{"type": "logs.subscribe", "after_seq": "1"}', "after_seq"),
        ('{"type": "logs.subscribe", "after_seq": -1}', "after_seq"),
        ('{"type": "logs.subscribe", "after_seq": true}', "after_seq"),
        ('{"type": "logs.subscribe", "after_seq": 1.5}', "after_seq"),
        ('{"type": "logs.subscribe", "after_seq": 9223372036854775808}', "after_seq"),
        ('{"type": "logs.subscribe", "level": "loud"}', "level"),
        ('{"type": "logs.subscribe", "model": 5}', "model"),
    ],
)
def test_a_wrong_subscription_is_explained(message: str | bytes, param: str) -> None:
    with pytest.raises(LemonbusError) as caught:
        parse_subscription(1, message, LogQuery())
    assert (caught.value.failure.code, caught.value.failure.param) == (Code.INVALID_REQUEST, param)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²", "1" * 19, " 1"])
def test_a_wrong_position_in_the_query_is_explained(text: str) -> None:
    with pytest.raises(LemonbusError) as caught:
        parse_query({"after_seq": text})
    assert caught.value.failure.param == "after_seq"


def test_levels_and_severities_are_both_words_for_a_level() -> None:
    assert [parse_query({"level": word}).level for word in ("", "trace", "Fatal", "ERROR", "critical")] == [
        "",
        "trace",
        "critical",
        "error",
        "critical",
    ]


def test_a_backlog_keeps_the_newest_and_counts_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_entries, "MAX_BACKLOG_ENTRIES", 3)
    backlog = LogBacklog()
    backlog.put(LogBatch(1, [entry(seq) for seq in range(1, 6)], dropped=10))
    taken = [backlog.take() for _ in range(4)]
    assert [(found[0].seq, found[1]) for found in taken if found] == [(3, 12), (4, 0), (5, 0)]
    assert taken[3] is None


def test_a_backlog_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_entries, "MAX_BACKLOG_BYTES", 2 * len(entry(1).fields))
    backlog = LogBacklog()
    backlog.put(LogBatch(1, [entry(1), entry(2), entry(3)]))
    assert backlog.take() == (entry(2), 1)
    backlog.put(LogBatch(1, [entry(4)], dropped=5))
    assert backlog.take() == (entry(3), 5)
    assert backlog.take() == (entry(4), 0)
