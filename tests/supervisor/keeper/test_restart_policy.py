"""What follows the end of a supervisor, and when it is killed, as tables; and how long silence is endured."""

from __future__ import annotations

import pytest

from supervisor.keeper.heartbeat import FRESH_S, MAX_STEP_S, SILENCE_S, STARTUP_SILENCE_S, Heartbeat
from supervisor.keeper.process_states import ServerState, SupervisorState
from supervisor.keeper.restart_policy import (
    MAX_EARLY_DEATHS,
    MAX_PAUSE_S,
    UPGRADE_TIMEOUT_S,
    Exit,
    Restart,
    RestartPolicy,
    SupervisorEnd,
    reason_to_kill,
    upgrade_event,
)
from supervisor.keeper.upgrade_steps import UpgradeEvent, UpgradeState

SIGKILL = -9
NOT_FORKED, STARTING, RUNNING, SERVING, LEAVING_EARLY, LEAVING, HANDED_OVER, KILLED = (
    SupervisorState.ORDERED,
    SupervisorState.STARTING,
    SupervisorState.RUNNING,
    SupervisorState.SERVING,
    SupervisorState.LEAVING_EARLY,
    SupervisorState.LEAVING,
    SupervisorState.HANDED_OVER,
    SupervisorState.KILLED,
)
ORDINARY, CLOSING, ENDING = ServerState.RUNNING, ServerState.CLOSING, ServerState.ENDING


@pytest.mark.parametrize(
    ("end", "server", "expected"),
    [
        (SupervisorEnd(LEAVING, 0, 9.0), ORDINARY, 0),
        (SupervisorEnd(LEAVING, 1, 9.0, exit_code=1), ORDINARY, 1),  # it cannot continue: the service manager decides
        (SupervisorEnd(LEAVING, SIGKILL, 9.0), ORDINARY, 0),  # it hung after its last word
        (SupervisorEnd(LEAVING_EARLY, 2, 0.1, exit_code=2, first=True), ORDINARY, 2),  # bad settings
        (SupervisorEnd(LEAVING_EARLY, 1, 0.1, exit_code=1, first=True), ORDINARY, 1),  # the port is taken
        (SupervisorEnd(STARTING, 1, 0.1, first=True), ORDINARY, 1),  # an exception at the first start
        (SupervisorEnd(LEAVING_EARLY, 0, 9.0), CLOSING, 0),
        (SupervisorEnd(SERVING, SIGKILL, 9.0), CLOSING, None),  # its successor lets streams end
        (SupervisorEnd(SERVING, SIGKILL, 9.0), ENDING, 1),
        (SupervisorEnd(NOT_FORKED, None, 0.0), ENDING, 1),
        (SupervisorEnd(STARTING, SIGKILL, 0.1, first=True), ORDINARY, None),
        (SupervisorEnd(NOT_FORKED, None, 0.0, first=True), ORDINARY, None),
        (SupervisorEnd(KILLED, SIGKILL, 99.0, first=True), ORDINARY, None),
        (SupervisorEnd(SERVING, SIGKILL, 99.0), ORDINARY, None),
        (SupervisorEnd(SERVING, 1, 99.0), ORDINARY, None),  # an exception: not what it announced
        (SupervisorEnd(SERVING, 0, 99.0), ORDINARY, None),
        # a later one finds the settings wrong: running processes continue
        (SupervisorEnd(LEAVING_EARLY, 2, 0.1, exit_code=2), ORDINARY, None),
        (SupervisorEnd(RUNNING, 1, 0.1), ORDINARY, None),
        (SupervisorEnd(HANDED_OVER, 0, 0.1), ORDINARY, None),
    ],
)
def test_the_end_of_one_supervisor(end: SupervisorEnd, server: ServerState, expected: int | None) -> None:
    decision = RestartPolicy().after(end, server)
    if isinstance(decision, Exit):
        assert decision.code == expected
        assert not decision.gave_up
    else:
        assert expected is None
        assert decision.pause == 0.0


def test_supervisors_that_die_in_the_shutdown_are_replaced_three_times() -> None:
    policy = RestartPolicy()
    decisions = [policy.after(SupervisorEnd(SERVING, SIGKILL, 9.0), CLOSING) for _ in range(4)]
    assert [isinstance(decision, Exit) for decision in decisions] == [False, False, False, True]


def test_early_deaths_are_followed_later_and_later_and_ten_in_a_row_are_the_end() -> None:
    policy = RestartPolicy()
    pauses = []
    for _ in range(MAX_EARLY_DEATHS - 1):
        decision = policy.after(SupervisorEnd(RUNNING, SIGKILL, 0.5), ORDINARY)
        assert isinstance(decision, Restart)
        pauses.append(decision.pause)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (0.0, 0.1, MAX_PAUSE_S)
    last = policy.after(SupervisorEnd(RUNNING, SIGKILL, 0.5), ORDINARY)
    assert isinstance(last, Exit)
    assert (last.code, last.gave_up) == (1, True)


def test_a_supervisor_that_lived_a_second_ends_the_row() -> None:
    policy = RestartPolicy()
    for _ in range(5):
        for _ in range(MAX_EARLY_DEATHS - 1):
            assert isinstance(policy.after(SupervisorEnd(RUNNING, SIGKILL, 0.5), ORDINARY), Restart)
        decision = policy.after(SupervisorEnd(SERVING, SIGKILL, 1.0), ORDINARY)
        assert isinstance(decision, Restart)
        assert decision.pause == 0.0


@pytest.mark.parametrize("state", [HANDED_OVER, RUNNING])
def test_a_planned_end_does_not_count_as_a_death(state: SupervisorState) -> None:
    policy = RestartPolicy()
    for _ in range(3 * MAX_EARLY_DEATHS):
        decision = policy.after(SupervisorEnd(state, 0, 0.1), ORDINARY, planned=True)
        assert isinstance(decision, Restart)
        assert decision.pause == 0.0


BY_SIGNAL, BY_ITSELF, NEVER_RAN = (
    SupervisorEnd(RUNNING, SIGKILL, 1.0),
    SupervisorEnd(RUNNING, 1, 1.0),
    SupervisorEnd(NOT_FORKED, None, 0.0),
)


@pytest.mark.parametrize(
    ("upgrade", "end", "can_fork", "expected"),
    [
        (UpgradeState.NONE, BY_SIGNAL, True, None),
        (UpgradeState.IMPORTING, BY_SIGNAL, True, None),  # the old version forks another one meanwhile
        (UpgradeState.PREPARED, BY_SIGNAL, True, UpgradeEvent.REPLACE),
        (UpgradeState.HANDING_OVER, SupervisorEnd(HANDED_OVER, 0, 9.0), True, UpgradeEvent.REPLACE),
        (UpgradeState.HANDING_OVER, SupervisorEnd(KILLED, SIGKILL, 9.0), True, UpgradeEvent.REPLACE),
        (UpgradeState.TAKING_OVER, BY_SIGNAL, True, UpgradeEvent.TRY_AGAIN),
        (UpgradeState.TAKING_OVER, BY_SIGNAL, False, UpgradeEvent.FAIL),
        (UpgradeState.TRYING_AGAIN, BY_SIGNAL, True, UpgradeEvent.FAIL),
        (UpgradeState.TAKING_OVER, BY_ITSELF, True, UpgradeEvent.FAIL),
        (UpgradeState.TAKING_OVER, NEVER_RAN, True, UpgradeEvent.FAIL),
        (UpgradeState.TAKING_OVER, SupervisorEnd(KILLED, SIGKILL, 9.0), True, UpgradeEvent.FAIL),
        (UpgradeState.TAKING_OVER, SupervisorEnd(LEAVING_EARLY, 1, 9.0), True, UpgradeEvent.FAIL),
    ],
)
def test_what_an_end_is_for_an_upgrade(
    upgrade: UpgradeState, end: SupervisorEnd, can_fork: bool, expected: UpgradeEvent | None
) -> None:
    assert upgrade_event(upgrade, end, can_fork=can_fork) is expected


@pytest.mark.parametrize(
    ("state", "silence", "upgrade", "server", "overdue", "reason"),
    [
        (SERVING, 1.0, UpgradeState.NONE, ORDINARY, False, ""),
        (SERVING, SILENCE_S, UpgradeState.NONE, ORDINARY, False, "gave no sign of life"),
        (STARTING, SILENCE_S, UpgradeState.NONE, ORDINARY, False, ""),
        (STARTING, STARTUP_SILENCE_S, UpgradeState.NONE, ORDINARY, False, "gave no sign of life"),
        (STARTING, UPGRADE_TIMEOUT_S, UpgradeState.TAKING_OVER, ORDINARY, False, "did not serve within 60 s"),
        (STARTING, UPGRADE_TIMEOUT_S, UpgradeState.TRYING_AGAIN, ORDINARY, False, "did not serve within 60 s"),
        (STARTING, UPGRADE_TIMEOUT_S, UpgradeState.TAKING_OVER, CLOSING, False, ""),
        (STARTING, UPGRADE_TIMEOUT_S, UpgradeState.IMPORTING, ORDINARY, False, ""),
        (SERVING, 1.0, UpgradeState.HANDING_OVER, ORDINARY, True, "did not end when it was told to"),
        (SERVING, 1.0, UpgradeState.NONE, ENDING, True, "did not end when it was told to"),
    ],
)
def test_when_a_supervisor_is_killed(
    state: SupervisorState, silence: float, upgrade: UpgradeState, server: ServerState, overdue: bool, reason: str
) -> None:
    heartbeat = Heartbeat(0.0)
    looked(heartbeat, 0.0, silence)
    assert reason in reason_to_kill(state, heartbeat, upgrade, server, overdue=overdue)
    assert bool(reason) == bool(reason_to_kill(state, heartbeat, upgrade, server, overdue=overdue))


def looked(heartbeat: Heartbeat, start: float, seconds: float, step: float = 1.0) -> float:
    """Look every second, and return the time at the end."""
    for number in range(round(seconds / step)):
        heartbeat.look(start + (number + 1) * step)
    return start + seconds


def test_silence_ends_freshness_and_then_the_supervisor() -> None:
    heartbeat = Heartbeat(100.0)
    assert not heartbeat.is_fresh(STARTING)
    heartbeat.beat()
    assert heartbeat.is_fresh(RUNNING)
    now = looked(heartbeat, 100.0, FRESH_S)
    assert heartbeat.is_fresh(SERVING), "a moment of silence is endured"
    now = looked(heartbeat, now, 1.0)
    assert (heartbeat.is_fresh(SERVING), heartbeat.is_lost(SERVING)) == (False, False)
    looked(heartbeat, now, SILENCE_S - FRESH_S - 1.0)
    assert heartbeat.is_lost(SERVING)
    heartbeat.beat()
    assert heartbeat.is_fresh(SERVING)
    assert not heartbeat.is_lost(SERVING)


def test_a_start_may_take_longer() -> None:
    heartbeat = Heartbeat(0.0)
    now = looked(heartbeat, 0.0, STARTUP_SILENCE_S - 1.0)
    assert not heartbeat.is_lost(STARTING)
    assert not heartbeat.is_fresh(STARTING)
    looked(heartbeat, now, 1.0)
    assert heartbeat.is_lost(STARTING)


def test_a_supervisor_that_is_never_forked_is_waited_for_a_shorter_time() -> None:
    heartbeat = Heartbeat(0.0)
    looked(heartbeat, 0.0, SILENCE_S)
    assert heartbeat.is_lost(NOT_FORKED)


def test_time_in_which_the_keeper_itself_was_stopped_does_not_count_as_silence() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.beat()
    heartbeat.look(1000.0)
    assert not heartbeat.is_lost(SERVING)
    assert MAX_STEP_S < SILENCE_S
    looked(heartbeat, 1000.0, SILENCE_S - MAX_STEP_S)
    assert heartbeat.is_lost(SERVING)
