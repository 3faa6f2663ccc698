"""Usage in memory: sums by day, key and model, and batches that are written once whatever dies meanwhile."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.usage import UsageRow, total
from protocol.times import day_of
from supervisor.usage.end_serials import MAX_AHEAD, MAX_PEERS, EndSerials
from supervisor.usage.usage_counts import UnwrittenState, UnwrittenUsage, UsageCounts


def row(day: str = "2031-05-01", key: str = "ci", model: str = "m", requests: int = 1, **more: int) -> UsageRow:
    return msgspec.structs.replace(UsageRow(day, key, model, requests), **more)


def test_a_day_ends_at_midnight_in_utc() -> None:
    assert [day_of(moment) for moment in (0.0, 86_399.9, 86_400.0)] == ["1970-01-01", "1970-01-01", "1970-01-02"]


def test_rows_of_one_day_key_and_model_are_one_row() -> None:
    counts = UsageCounts(
        [row(prompt_tokens=3), row(model="n"), row(prompt_tokens=4), row(day="2031-05-02"), row(key="")]
    )
    assert counts.rows() == [row(key=""), row(requests=2, prompt_tokens=7), row(model="n"), row(day="2031-05-02")]


def test_failures_are_counted_by_code_and_in_three_kinds() -> None:
    one = UsageRow("", "", "", 5, failures={"cancelled": 1, "rate_limit_exceeded": 2})
    two = UsageRow("", "", "", 5, failures={"rate_limit_exceeded": 1, "forbidden": 1, "invalid_request": 1, "other": 1})
    both = total([one, two])
    assert both.failures == {"cancelled": 1, "rate_limit_exceeded": 3, "forbidden": 1, "invalid_request": 1, "other": 1}
    assert (both.requests, both.refusals, both.cancelled, both.errors) == (10, 4, 1, 2)
    assert one.failures == {"cancelled": 1, "rate_limit_exceeded": 2}, "it is not changed"


def test_a_batch_stays_the_same_until_it_is_written_and_what_comes_later_is_in_the_next() -> None:
    usage = UnwrittenUsage()
    assert not usage.begin_batch()
    usage.add(row())
    assert usage.begin_batch()
    first = usage.batch
    assert first is not None
    assert (first.number, first.rows) == (1, [row()])
    usage.add(row())
    assert not usage.begin_batch(), "one is being written"
    assert (usage.batch, usage.rows()) == (first, [row(requests=2)])
    usage.written(7)
    assert usage.batch == first
    usage.written(1)
    assert (usage.batch, usage.rows()) == (None, [row()])
    assert usage.begin_batch()
    assert usage.batch is not None
    assert (usage.batch.server, usage.batch.number) == (first.server, 2)


@pytest.mark.parametrize("begun", [False, True])
def test_the_next_supervisor_writes_the_same_batch_under_the_same_number(begun: bool) -> None:
    usage, successor = UnwrittenUsage(), UnwrittenUsage()
    usage.add(row())
    if begun:
        usage.begin_batch()
        usage.add(row(model="n"))
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(usage.state()), type=UnwrittenState)
    successor.restore(state)
    assert (successor.batch, successor.rows()) == (usage.batch, usage.rows())
    successor.begin_batch()
    usage.begin_batch()
    assert successor.batch == usage.batch


def test_a_report_counts_once() -> None:
    serials = EndSerials()
    assert [serials.is_new("w1", number) for number in (1, 2, 1, 2, 3)] == [True, True, False, False, True]
    assert serials.is_new("w2", 1)


@given(st.lists(st.integers(1, 40), max_size=80))
def test_each_number_counts_once_in_any_order_and_for_any_supervisor(numbers: list[int]) -> None:
    serials, counted = EndSerials(), []
    for number in numbers:
        if serials.is_new("w1", number):
            counted.append(number)
        successor = EndSerials()
        successor.restore(serials.state())
        assert successor.state() == serials.state()
        serials = successor
    assert sorted(counted) == sorted(set(numbers))


def test_the_numbers_that_are_remembered_are_bounded() -> None:
    serials = EndSerials()
    for number in range(2, 2 * MAX_AHEAD):
        assert serials.is_new("w1", number)
    assert len(serials.state()["w1"]) <= MAX_AHEAD + 1
    assert not serials.is_new("w1", MAX_AHEAD)
    for peer in range(2 * MAX_PEERS):
        serials.is_new(f"w{peer}", 1)
    assert len(serials.state()) == MAX_PEERS
