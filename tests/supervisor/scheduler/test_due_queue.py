"""What is to be looked at is found in its order, at its time, and what no longer holds takes no memory."""

from __future__ import annotations

import pytest

from supervisor.scheduler.due_queue import NEVER_DUE, DueQueue


class One:
    """Something to look at."""

    def __init__(self, serial: int) -> None:
        self.serial, self.wake_at = serial, NEVER_DUE


def looked_at(queue: DueQueue[One], now: float) -> list[int]:
    with queue.look(now) as due:
        return [one.serial for one in due]


def test_what_has_changed_is_due_once_and_in_order() -> None:
    queue: DueQueue[One] = DueQueue()
    for one in (One(2), One(1)):
        queue.changed(one)
    assert looked_at(queue, 0.0) == [1, 2]
    assert looked_at(queue, 0.0) == []


def test_only_the_last_time_holds() -> None:
    queue, one = DueQueue[One](), One(1)
    queue.look_again(one, 5.0)
    queue.look_again(one, 9.0)
    assert looked_at(queue, 5.0) == []
    assert looked_at(queue, 9.0) == [1]
    queue.look_again(one, 12.0)
    queue.look_again(one, NEVER_DUE)
    assert looked_at(queue, 100.0) == []


def test_what_is_due_when_a_look_fails_is_due_again() -> None:
    queue, one = DueQueue[One](), One(1)
    queue.changed(one)
    with pytest.raises(ValueError, match="it failed"), queue.look(0.0):
        raise ValueError("it failed")
    assert looked_at(queue, 0.0) == [1]


def test_times_that_no_longer_hold_are_dropped() -> None:
    queue, ones = DueQueue[One](), [One(number) for number in range(3)]
    for number in range(30_000):
        queue.look_again(ones[number % 3], 3600.0 + number)
    assert len(queue._timers) < 1000
    assert looked_at(queue, 3600.0 + 30_000) == [0, 1, 2]
