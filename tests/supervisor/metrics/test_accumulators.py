"""Counters and histograms: their counts, and that no label makes them grow without a bound."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.metrics import OTHER
from supervisor.metrics.accumulators import MAX_SERIES, Counter, Histogram, LabelValues, RecentValues

BOUNDS = (0.5, 1.0, 2.0)


def test_a_value_that_equals_a_bound_is_below_it() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.0, 0.5, 0.6, 2.0, 2.1):
        histogram.observe((), value)
    assert histogram.distributions[()].counts == [2, 1, 1, 1]
    assert histogram.distributions[()].sum == 5.2


@given(st.lists(st.floats(0, 4, width=32)), st.lists(st.floats(0, 4, width=32)))
def test_many_values_at_once_count_like_one_by_one(first: list[float], second: list[float]) -> None:
    together, alone = Histogram(BOUNDS), Histogram(BOUNDS)
    for values in (first, second):
        together.observe_all((), array("f", values))
        for value in values:
            alone.observe((), value)
    assert together.distributions[()].counts == alone.distributions[()].counts
    assert abs(together.distributions[()].sum - alone.distributions[()].sum) < 1e-6


def test_buckets_of_another_shape_are_not_merged() -> None:
    histogram = Histogram(BOUNDS)
    histogram.merge((), [1, 2, 3, 4], 7.5)
    histogram.merge((), [1], 100.0)
    histogram.merge((), [1] * 9, 100.0)
    assert histogram.distributions[()].counts == [1, 2, 3, 4]
    assert histogram.distributions[()].sum == 7.5


def test_the_first_values_of_a_label_are_kept_apart() -> None:
    values = LabelValues(2)
    assert [values.bounded(value) for value in ("a", "b", "c", "a", "", "d", "b")] == [
        "a",
        "b",
        OTHER,
        "a",
        OTHER,
        OTHER,
        "b",
    ]


def test_the_values_that_were_seen_last_are_kept_apart() -> None:
    dropped: list[str] = []
    values = RecentValues(2, dropped.append)
    assert [values.bounded(value) for value in ("a", "b", "a", "", "c", "a")] == ["a", "b", "a", OTHER, "c", "a"]
    assert dropped == ["b"]
    assert values.bounded("b") == "b"
    assert dropped == ["b", "c"]


def test_values_in_use_keep_their_places() -> None:
    dropped: list[str] = []
    values = RecentValues(2, dropped.append)
    used = {"a"}
    values.in_use = used.__contains__
    assert [values.bounded(value) for value in ("a", "b", "c")] == ["a", "b", "c"]
    used.add("c")
    assert values.bounded("d") == OTHER
    assert dropped == ["b"]
    used.clear()
    assert values.bounded("d") == "d"
    assert dropped == ["b", "a"]


def test_what_is_only_shown_takes_no_place() -> None:
    dropped: list[str] = []
    values = RecentValues(3, dropped.append)
    values.bounded("a")
    values.bounded("b")
    assert values.shown(["x", "a", "y", "x"]) == {"a", "x"}
    values.bounded("c")
    assert values.shown(["x", "a"]) == {"a"}
    assert (values.state(), dropped) == (["a", "b", "c"], [])


def test_dropped_combinations_still_count_in_the_total() -> None:
    counter, histogram = Counter("model", "result"), Histogram(BOUNDS, "model")
    for model in ("a", "b"):
        counter.add((model, "ok"), 3)
        counter.add((model, "failed"))
        histogram.observe((model,), 0.1)
    counter.drop("model", "a")
    histogram.drop("model", "a")
    counter.drop("key", "b")
    counter.drop("result", "a")
    assert counter.values == {("b", "ok"): 3, ("b", "failed"): 1}
    assert list(histogram.distributions) == [("b",)]
    assert counter.total == 8
    counter.add(("a", "ok"))
    assert counter.values["a", "ok"] == 1


def test_combinations_beyond_the_limit_share_one_series() -> None:
    counter, histogram = Counter("x"), Histogram(BOUNDS, "x")
    for number in range(3 * MAX_SERIES):
        counter.add((str(number),))
        histogram.observe((str(number),), 0.1)
    assert len(counter.values) == len(histogram.distributions) == MAX_SERIES + 1
    assert counter.total == 3 * MAX_SERIES
    assert counter.values[(OTHER,)] == sum(histogram.distributions[(OTHER,)].counts) == 2 * MAX_SERIES
