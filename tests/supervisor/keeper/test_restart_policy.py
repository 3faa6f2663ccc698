"""What follows the end of a supervisor, as a table; and how long silence is endured."""

from __future__ import annotations

import pytest

from supervisor.keeper.heartbeat import FRESH_S, MAX_STEP_S, SILENCE_S, STARTUP_SILENCE_S, Heartbeat
from supervisor.keeper.restart_policy import (
    MAX_EARLY_DEATHS,
    MAX_PAUSE_S,
    Exit,
    Restart,
    RestartPolicy,
    SupervisorEnd,
)

KILLED = -9


@pytest.mark.parametrize(
    ("end", "orders", "expected"),
    [
        (SupervisorEnd(0, 9.0, leaving=0, ready=True), 0, 0),
        (SupervisorEnd(1, 9.0, leaving=1, ready=True), 0, 1),  # it cannot go on: its service manager decides
        (SupervisorEnd(2, 0.1, leaving=2, first=True), 0, 2),  # bad settings
        (SupervisorEnd(1, 0.1, leaving=1, first=True), 0, 1),  # the port is taken
        (SupervisorEnd(1, 0.1, first=True), 0, 1),  # an exception at the first start
        (SupervisorEnd(0, 9.0, leaving=0), 1, 0),
        (SupervisorEnd(KILLED, 9.0, ready=True), 1, None),  # its successor lets streams end
        (SupervisorEnd(KILLED, 9.0, ready=True), 2, 1),
        (SupervisorEnd(None, 0.0), 2, 1),
        (SupervisorEnd(KILLED, 0.1, first=True), 0, None),
        (SupervisorEnd(None, 0.0, first=True), 0, None),
        (SupervisorEnd(KILLED, 99.0, ready=True), 0, None),
        (SupervisorEnd(1, 99.0, ready=True), 0, None),  # an exception: not what it announced
        (SupervisorEnd(0, 99.0, ready=True), 0, None),
        (SupervisorEnd(2, 0.1, leaving=2), 0, None),  # a later one finds the settings bad: what runs, runs on
        (SupervisorEnd(1, 0.1), 0, None),
        (SupervisorEnd(0, 0.1, handed_over=True), 0, None),
    ],
)
def test_the_end_of_one_supervisor(end: SupervisorEnd, orders: int, expected: int | None) -> None:
    decision = RestartPolicy().after(end, orders_to_end=orders)
    if isinstance(decision, Exit):
        assert decision.code == expected
        assert not decision.gave_up
    else:
        assert expected is None
        assert decision.pause == 0.0


def test_supervisors_that_die_in_the_shutdown_are_replaced_three_times() -> None:
    policy = RestartPolicy()
    decisions = [policy.after(SupervisorEnd(KILLED, 9.0), orders_to_end=1) for _ in range(4)]
    assert [isinstance(decision, Exit) for decision in decisions] == [False, False, False, True]


def test_early_deaths_are_followed_later_and_later_and_ten_in_a_row_are_the_end() -> None:
    policy = RestartPolicy()
    pauses = []
    for _ in range(MAX_EARLY_DEATHS - 1):
        decision = policy.after(SupervisorEnd(KILLED, 0.5))
        assert isinstance(decision, Restart)
        pauses.append(decision.pause)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (0.0, 0.1, MAX_PAUSE_S)
    last = policy.after(SupervisorEnd(KILLED, 0.5))
    assert isinstance(last, Exit)
    assert (last.code, last.gave_up) == (1, True)


def test_a_supervisor_that_lived_a_second_ends_the_row() -> None:
    policy = RestartPolicy()
    for _ in range(5):
        for _ in range(MAX_EARLY_DEATHS - 1):
            assert isinstance(policy.after(SupervisorEnd(KILLED, 0.5)), Restart)
        decision = policy.after(SupervisorEnd(KILLED, 1.0, ready=True))
        assert isinstance(decision, Restart)
        assert decision.pause == 0.0


def test_a_hand_over_is_no_death() -> None:
    policy = RestartPolicy()
    for _ in range(3 * MAX_EARLY_DEATHS):
        decision = policy.after(SupervisorEnd(0, 0.1, handed_over=True))
        assert isinstance(decision, Restart)
        assert decision.pause == 0.0


def looked(heartbeat: Heartbeat, start: float, seconds: float, step: float = 1.0) -> float:
    """Look every second, and return the time at the end."""
    for number in range(round(seconds / step)):
        heartbeat.look(start + (number + 1) * step)
    return start + seconds


def test_silence_ends_freshness_and_then_the_supervisor() -> None:
    heartbeat = Heartbeat(100.0)
    assert not heartbeat.fresh
    heartbeat.beat()
    assert heartbeat.fresh
    now = looked(heartbeat, 100.0, FRESH_S + 1.0)
    assert (heartbeat.fresh, heartbeat.lost) == (False, False)
    looked(heartbeat, now, SILENCE_S - FRESH_S - 1.0)
    assert heartbeat.lost
    heartbeat.beat()
    assert heartbeat.fresh
    assert not heartbeat.lost


def test_a_start_may_take_longer() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.begin()
    now = looked(heartbeat, 0.0, STARTUP_SILENCE_S - 1.0)
    assert not heartbeat.lost
    assert not heartbeat.fresh
    looked(heartbeat, now, 1.0)
    assert heartbeat.lost


def test_one_that_is_not_forked_at_all_is_not_waited_for_so_long() -> None:
    heartbeat = Heartbeat(0.0)
    looked(heartbeat, 0.0, SILENCE_S)
    assert heartbeat.lost


def test_time_in_which_the_keeper_itself_was_stopped_is_no_silence() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.beat()
    heartbeat.look(1000.0)
    assert not heartbeat.lost
    assert MAX_STEP_S < SILENCE_S
    looked(heartbeat, 1000.0, SILENCE_S - MAX_STEP_S)
    assert heartbeat.lost
