"""When a worker reads its streams in ticks."""

from __future__ import annotations

import pytest

from workers.stream.read_batching_policy import MAX_TICK_S, MIN_TICK_S, TICK_SHARE, WINDOW, ReadBatchingPolicy


def pieces(pace: ReadBatchingPolicy, count: int, gap: float, now: float = 100.0) -> bool:
    return sum(pace.piece(now + place * gap) for place in range(count)) > 0


@pytest.mark.parametrize(("gap", "ticks"), [(0.0001, True), (0.0004, True), (0.001, False), (0.1, False)])
def test_only_a_crowd_is_read_in_ticks(gap: float, ticks: bool) -> None:
    pace = ReadBatchingPolicy()
    assert pieces(pace, 3 * WINDOW, gap) is ticks
    assert pace.ticking is ticks


def test_a_short_burst_is_not_a_crowd() -> None:
    assert not pieces(ReadBatchingPolicy(), WINDOW - 1, 0.0)


def test_ticks_end_when_little_comes_in_them() -> None:
    pace = ReadBatchingPolicy()
    assert pieces(pace, 2 * WINDOW, 0.0001)
    for tick in range(10 * WINDOW):
        for _ in range(4):
            pace.piece(200.0 + tick)
        assert pace.tick(200.0 + tick, 4)
    ended = [not pace.tick(900.0 + tick, 4) for tick in range(2 * WINDOW)]
    assert any(ended)
    assert not pace.ticking


@pytest.mark.parametrize(
    ("streams", "between", "pause"),
    [(4, 0.0005, MIN_TICK_S), (8, 0.005, TICK_SHARE * 0.005), (32, 0.005, TICK_SHARE * 0.005), (64, 0.03, MAX_TICK_S)],
)
def test_a_tick_is_short_beside_the_time_between_two_tokens(streams: int, between: float, pause: float) -> None:
    pace = ReadBatchingPolicy()
    assert pieces(pace, 2 * WINDOW, 0.0001)
    assert pace.pause == MIN_TICK_S
    now = 100.0 + 2 * WINDOW * 0.0001
    waiting = 0.0
    for _ in range(2 * WINDOW):
        now += pace.pause
        waiting += pace.pause * streams / between
        for _ in range(int(waiting)):
            pace.piece(now)
        waiting %= 1
        assert pace.tick(now, streams)
    assert pace.pause == pytest.approx(pause, rel=0.1)
