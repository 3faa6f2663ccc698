"""When a worker reads its streams in ticks."""

from __future__ import annotations

import pytest

from workers.pace import WINDOW, Pace


def pieces(pace: Pace, count: int, gap: float, now: float = 100.0) -> bool:
    return sum(pace.piece(now + place * gap) for place in range(count)) > 0


@pytest.mark.parametrize(("gap", "ticks"), [(0.0001, True), (0.0004, True), (0.001, False), (0.1, False)])
def test_only_a_crowd_is_read_in_ticks(gap: float, ticks: bool) -> None:
    pace = Pace()
    assert pieces(pace, 3 * WINDOW, gap) is ticks
    assert pace.ticking is ticks


def test_a_short_burst_is_not_a_crowd() -> None:
    assert not pieces(Pace(), WINDOW - 1, 0.0)


def test_ticks_end_when_little_comes_in_them() -> None:
    pace = Pace()
    assert pieces(pace, 2 * WINDOW, 0.0001)
    for tick in range(10 * WINDOW):
        for _ in range(4):
            pace.piece(200.0 + tick)
        assert pace.tick(200.0 + tick)
    ended = [not pace.tick(900.0 + tick) for tick in range(2 * WINDOW)]
    assert any(ended)
    assert not pace.ticking
