"""The token bucket: exact in bursts and over time, whenever requests come."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.limits.token_bucket import TokenBucket


def taken(bucket: TokenBucket, now: float, tries: int = 10_000) -> int:
    """Take single units until there is none, and return how many there were."""
    for count in range(tries):
        if bucket.wait_for(1, now):
            return count
        bucket.take(1, now)
    return tries


@pytest.mark.parametrize("limit", [1, 3, 60, 7919])
def test_a_burst_gets_exactly_the_limit_and_each_share_of_a_minute_one_more(limit: int) -> None:
    bucket = TokenBucket(limit, 100.0)
    assert taken(bucket, 100.0) == limit
    assert bucket.wait_for(1, 100.0) == pytest.approx(60 / limit)
    assert taken(bucket, 100.0 + 59.9 / limit) == 0
    assert taken(bucket, 100.0 + 60 / limit) == 1
    assert taken(bucket, 100.0 + 60 / limit + 3600) == limit


def test_waiting_as_long_as_is_said_suffices() -> None:
    bucket = TokenBucket(7, 0.0)
    now = 0.0
    for _ in range(1000):
        now += bucket.wait_for(1, now)
        assert bucket.wait_for(1, now) == 0.0
        bucket.take(1, now)
    assert now == pytest.approx((1000 - 7) * 60 / 7)


def test_a_debt_is_paid_before_anything_else() -> None:
    bucket = TokenBucket(600, 0.0)
    bucket.take(1500, 0.0)
    assert bucket.level(0.0) == -900
    assert bucket.wait_for(1, 0.0) == pytest.approx(90.1)
    assert bucket.wait_for(1, 90.0) == pytest.approx(0.1)
    assert bucket.level(3600.0) == 600


def test_another_limit_keeps_what_was_used() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.take(8, 0.0)
    bucket.resize(100, 0.0)
    assert bucket.level(0.0) == 92
    bucket.resize(50, 0.0)
    assert bucket.level(0.0) == 46


def test_a_smaller_limit_makes_no_debt() -> None:
    bucket = TokenBucket(100_000, 0.0)
    bucket.take(90_000, 0.0)
    bucket.resize(100, 0.0)
    assert bucket.level(0.0) == 10


@given(st.integers(1, 500), st.lists(st.floats(0, 30), max_size=60), st.integers(1, 20))
def test_no_window_has_more_than_the_limit_and_its_share(limit: int, pauses: list[float], tries: int) -> None:
    bucket = TokenBucket(limit, 0.0)
    now, moments = 0.0, []
    for pause in pauses:
        now += pause
        moments += [now] * taken(bucket, now, tries)
    for first in range(len(moments)):
        last = len(moments) - 1
        window = moments[last] - moments[first]
        assert last - first + 1 <= limit * (1 + window / 60) + 1e-3


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(2, 10.0)
    assert taken(bucket, 10.0) == 2
    assert taken(bucket, 5.0) == 0
