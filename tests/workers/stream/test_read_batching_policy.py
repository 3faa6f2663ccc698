"""When a worker reads its streams together, at the ticks of a timer."""

from __future__ import annotations

import pytest

from workers.stream.read_batching import MAX_TICK_S, MIN_TICK_S, TICK_SHARE, WINDOW, ReadBatchingPolicy


def pieces(policy: ReadBatchingPolicy, count: int, gap: float, now: float = 100.0) -> bool:
    return sum(policy.count_piece(now + index * gap) for index in range(count)) > 0


@pytest.mark.parametrize(("gap", "ticks"), [(0.0001, True), (0.0004, True), (0.001, False), (0.1, False)])
def test_only_a_fast_engine_is_read_in_ticks(gap: float, ticks: bool) -> None:
    policy = ReadBatchingPolicy()
    assert pieces(policy, 3 * WINDOW, gap) is ticks
    assert policy.ticking is ticks


def test_a_short_burst_starts_no_ticks() -> None:
    assert not pieces(ReadBatchingPolicy(), WINDOW - 1, 0.0)


def test_ticks_end_when_few_pieces_arrive() -> None:
    policy = ReadBatchingPolicy()
    assert pieces(policy, 2 * WINDOW, 0.0001)
    for tick in range(10 * WINDOW):
        for _ in range(4):
            policy.count_piece(200.0 + tick)
        assert policy.count_tick(200.0 + tick, 4)
    ended = [not policy.count_tick(900.0 + tick, 4) for tick in range(2 * WINDOW)]
    assert any(ended)
    assert not policy.ticking


@pytest.mark.parametrize(
    ("streams", "token_interval", "pause"),
    [(4, 0.0005, MIN_TICK_S), (8, 0.005, TICK_SHARE * 0.005), (32, 0.005, TICK_SHARE * 0.005), (64, 0.03, MAX_TICK_S)],
)
def test_a_tick_is_short_compared_with_the_time_between_two_tokens(
    streams: int, token_interval: float, pause: float
) -> None:
    policy = ReadBatchingPolicy()
    assert pieces(policy, 2 * WINDOW, 0.0001)
    assert policy.pause == MIN_TICK_S
    now = 100.0 + 2 * WINDOW * 0.0001
    waiting = 0.0
    for _ in range(2 * WINDOW):
        now += policy.pause
        waiting += policy.pause * streams / token_interval
        for _ in range(int(waiting)):
            policy.count_piece(now)
        waiting %= 1
        assert policy.count_tick(now, streams)
    assert policy.pause == pytest.approx(pause, rel=0.1)
