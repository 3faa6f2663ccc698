"""The retained log: numbers, filters, followers, and the counts of lost records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import Code, LemonbusError
from protocol.messages.log_stream import FollowLogs, LogEntry, LogSnapshot
from protocol.runtime.log_output import MAX_LINE_BYTES
from supervisor.runtime import retained_log
from supervisor.runtime.retained_log import (
    MAX_BACKLOG_ENTRIES,
    MAX_BATCH_ENTRIES,
    MAX_FOLLOWERS,
    MAX_RETAINED,
    MAX_RETAINED_BYTES,
    RetainedLog,
)
from tests.supervisor.runtime.retained_records import filled, record, seqs
from tests.support.properties import examples


def test_records_are_numbered_from_one_and_kept_as_they_are() -> None:
    book = RetainedLog("boot")
    assert book.append(record("a")) == LogEntry(1, record("a"))
    assert book.append(record("b")) == LogEntry(2, record("b"))
    kept = [LogEntry(1, record("a")), LogEntry(2, record("b"))]
    assert book.snapshot(FollowLogs(0)) == LogSnapshot("boot", kept, retained_since=json.loads(record("a"))["ts"])


def test_the_retained_records_have_a_bound_in_bytes() -> None:
    book = RetainedLog("boot")
    line = record("x" * (MAX_LINE_BYTES - 200))
    for _ in range(2 * MAX_RETAINED_BYTES // len(line)):
        book.append(line)
    kept = book.snapshot(FollowLogs(0)).entries
    assert MAX_RETAINED_BYTES - len(line) < sum(len(entry.fields) for entry in kept) <= MAX_RETAINED_BYTES
    assert seqs(kept) == list(range(book.last_seq - len(kept) + 1, book.last_seq + 1)), "the oldest have gone"
    for number in range(MAX_RETAINED):
        book.append(record(str(number)))
    kept = book.snapshot(FollowLogs(0)).entries
    assert len(kept) == MAX_RETAINED, "small records: the bound in number holds"


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"nonsense",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"level":3}',
        b'{"dropped":"many"}',
        b'{"event":"\xff"}',
        b'{"a":' * 1300,
        b"[" * 4000,
        record("x" * MAX_LINE_BYTES),
    ],
)
def test_invalid_and_long_records_are_refused_and_counted(bad: bytes) -> None:
    book = filled(1)
    assert book.append(bad) is None
    assert (book.refused, book.lost, book.last_seq) == (1, 1, 1)
    assert book.snapshot(FollowLogs(0)).dropped == 1


def test_only_the_last_records_are_retained_never_more_than_5000() -> None:
    assert seqs(filled(10, retained=3).snapshot(FollowLogs(0)).entries) == [8, 9, 10]
    assert len(filled(MAX_RETAINED + 10, retained=10_000).snapshot(FollowLogs(0)).entries) == MAX_RETAINED


@pytest.mark.parametrize(("retained", "oldest"), [(3, "2"), (2, "3")])
def test_a_snapshot_tells_since_when_lines_are_retained_whatever_its_filters(retained: int, oldest: str) -> None:
    book = RetainedLog("boot", retained)
    assert book.snapshot(FollowLogs(0)).retained_since == ""
    for number in ("1", "2", "3", "4"):
        book.append(json.dumps({"ts": number, "level": "info", "model": number}).encode())
    assert book.snapshot(FollowLogs(0, model="4")).retained_since == oldest


def test_a_record_with_a_time_of_another_type_spoils_no_snapshot() -> None:
    book = RetainedLog("boot")
    assert book.append(b'{"ts":5}') is not None
    assert book.snapshot(FollowLogs(0)).retained_since == "5"


@pytest.mark.parametrize(
    ("after", "boot", "expected", "dropped"),
    [
        (None, "", [4, 5, 6], 0),
        (5, "", [6], 0),
        (5, "boot", [6], 0),
        (6, "boot", [], 0),
        (5, "an earlier one", [4, 5, 6], 0),
        (7, "", [4, 5, 6], 0),  # beyond the newest: it cannot be of this boot
        (-1, "", [4, 5, 6], 0),
        (0, "boot", [4, 5, 6], 3),  # 1, 2, 3 were asked for and are gone
        (2, "boot", [4, 5, 6], 1),
        (3, "boot", [4, 5, 6], 0),
    ],
)
def test_a_reader_resumes_where_it_was_in_this_boot(
    after: int | None, boot: str, expected: list[int], dropped: int
) -> None:
    got = filled(6, retained=3).snapshot(FollowLogs(0, after_seq=after, boot=boot))
    assert (seqs(got.entries), got.dropped) == (expected, dropped)


VARIED = [
    record(level="trace", model="a", request_id="r1"),
    record(level="debug", model="a", process="engine"),
    record(level="info", model="b", request_id="r1"),
    record(level="warning", process="gateway", request_id="r2"),
    record(level="error", model=None),
    record(level="critical", process="supervisor"),
    record(level="strange"),
    record(level="trace", node="gpu2", process="remote"),
    record(level="trace", node=None, process="remote"),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"level": "trace"}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"level": "info"}, [3, 4, 5, 6, 7]),
        ({"level": "critical"}, [6]),
        ({"model": "a"}, [1, 2]),
        ({"model": "a", "level": "debug"}, [2]),
        ({"request_id": "r1"}, [1, 3]),
        ({"process": "gateway"}, [4]),
        ({"process": "unknown"}, []),
        ({"node": "gpu2"}, [8]),
        ({"node": "head", "process": "remote"}, [9]),
    ],
)
def test_filters_apply_to_the_snapshot_and_to_later_records(filters: dict[str, Any], expected: list[int]) -> None:
    before, after = RetainedLog("boot"), RetainedLog("boot")
    after.follow("g1", FollowLogs(9, **filters))
    for each in VARIED:
        before.append(each)
        after.append(each)
    assert seqs(before.snapshot(FollowLogs(9, **filters)).entries) == expected
    assert [entry.seq for _, batch in after.batches() for entry in batch.entries] == expected


def test_an_unknown_level_is_the_callers_error() -> None:
    book = RetainedLog("boot")
    for call in (book.snapshot, lambda filters: book.follow("g1", filters)):
        with pytest.raises(LemonbusError) as caught:
            call(FollowLogs(0, level="loud"))
        assert caught.value.failure.code == Code.INVALID_REQUEST
        assert caught.value.failure.param == "level"


def test_followers_get_later_records_in_bounded_batches() -> None:
    book = filled(3)
    book.follow("g1", FollowLogs(1))
    for number in range(MAX_BATCH_ENTRIES + 5):
        book.append(record(str(number)))
    (peer, first), (_, second) = book.batches()
    assert (peer, first.number, len(first.entries), first.entries[0].seq) == ("g1", 1, MAX_BATCH_ENTRIES, 4)
    assert seqs(second.entries) == list(range(4 + MAX_BATCH_ENTRIES, 9 + MAX_BATCH_ENTRIES))
    assert book.batches() == []


def test_a_gateway_that_falls_behind_loses_the_oldest_and_gets_their_number() -> None:
    book = RetainedLog("boot")
    book.follow("slow", FollowLogs(1))
    book.follow("quick", FollowLogs(1))
    got = 0
    for _ in range(MAX_BACKLOG_ENTRIES + 100):
        book.append(record())
        got += sum(len(batch.entries) for peer, batch in book.batches(lambda peer: peer == "quick"))
    assert got == MAX_BACKLOG_ENTRIES + 100
    rest = book.batches()
    assert {peer for peer, _ in rest} == {"slow"}
    assert rest[0][1].entries[0].seq == 101
    assert [batch.dropped for _, batch in rest] == [100] + [0] * (len(rest) - 1)
    assert sum(len(batch.entries) for _, batch in rest) == MAX_BACKLOG_ENTRIES


def test_what_senders_lost_is_summed_up() -> None:
    book = RetainedLog("boot")
    book.append(record(dropped=3))
    book.append(record(dropped=-5))
    assert book.snapshot(FollowLogs(0)).dropped == 3


def test_a_snapshot_is_bounded_in_bytes_and_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_log, "MAX_SNAPSHOT_BYTES", 3 * len(record("1")))
    got = filled(5).snapshot(FollowLogs(0))
    assert (seqs(got.entries), got.dropped) == ([3, 4, 5], 2)


def test_readers_and_gateways_are_forgotten() -> None:
    book = RetainedLog("boot")
    for peer in ("g1", "g2"):
        for number in (1, 2):
            book.follow(peer, FollowLogs(number))
    book.forget("g1", 1)
    book.forget("g1", 77)
    book.forget("unknown", 1)
    book.forget_peer("g2")
    book.append(record())
    assert [(peer, batch.number) for peer, batch in book.batches()] == [("g1", 2)]
    book.forget("g1", 2)
    book.append(record())
    assert book.batches() == []


def test_readers_of_one_gateway_are_bounded_and_one_may_ask_again() -> None:
    book = RetainedLog("boot")
    for number in range(MAX_FOLLOWERS):
        book.follow("g1", FollowLogs(number))
    book.follow("g1", FollowLogs(0, level="error"))
    book.follow("g2", FollowLogs(0))
    with pytest.raises(LemonbusError) as caught:
        book.follow("g1", FollowLogs(MAX_FOLLOWERS))
    assert caught.value.failure.code == Code.OVERLOADED
    assert caught.value.failure.retry_after > 0


def always_sent(_peer: str) -> bool:
    return True


def never_sent(_peer: str) -> bool:
    return False


step = st.one_of(
    st.tuples(st.just("append"), st.sampled_from([*VARIED, b"bad"])),
    st.tuples(st.just("batches"), st.booleans()),
    st.tuples(st.just("append many"), st.integers(1, 700)),
)


@examples(40)
@given(st.lists(step, max_size=30))
def test_snapshot_and_batches_are_complete_or_count_what_is_missing(steps: list[tuple[str, Any]]) -> None:
    book = filled(5)
    seen = seqs(book.snapshot(FollowLogs(1)).entries)
    book.follow("g", FollowLogs(1))
    missed = 0
    for what, value in [*steps, *[("batches", True)] * 10]:
        if what == "append":
            book.append(value)
        elif what == "append many":
            for _ in range(value):
                book.append(VARIED[0])
        else:
            for _, batch in book.batches(always_sent if value else never_sent):
                assert len(batch.entries) <= MAX_BATCH_ENTRIES
                seen += seqs(batch.entries)
                missed += batch.dropped
    assert seen == sorted(set(seen))
    assert len(seen) + missed == book.last_seq
