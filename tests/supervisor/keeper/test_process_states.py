"""The tables that the keeper follows, and a supervisor's process along its table, over a real channel."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import pytest

from protocol.state_table import IllegalTransitionError, next_state
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel
from supervisor.keeper.fork_server_process import ForkServerProcess
from supervisor.keeper.keeper import Keeper
from supervisor.keeper.process_states import (
    FORK_SERVER,
    SERVER,
    SUPERVISOR,
    ForkServerEvent,
    ForkServerState,
    ServerLifecycleEvent,
    ServerState,
    SupervisorEvent,
    SupervisorState,
)
from supervisor.keeper.supervisor_process import SupervisorProcess
from supervisor.keeper.upgrade_steps import UPGRADE, UpgradeEvent, UpgradeState
from tests.support.waiting import wait_for

TABLES: Sequence[tuple[Mapping[Any, Mapping[Any, Any]], type[Enum], type[Enum]]] = [
    (SERVER, ServerState, ServerLifecycleEvent),
    (SUPERVISOR, SupervisorState, SupervisorEvent),
    (FORK_SERVER, ForkServerState, ForkServerEvent),
    (UPGRADE, UpgradeState, UpgradeEvent),
]


@pytest.mark.parametrize(("table", "states", "events"), TABLES)
def test_every_state_can_be_reached_and_every_event_happens(
    table: Mapping[Any, Mapping[Any, Any]], states: type[Enum], events: type[Enum]
) -> None:
    assert set(table) == set(states)
    assert {event for steps in table.values() for event in steps} == set(events)
    reached = {next(iter(states))}
    while found := {after for state in reached for after in table[state].values()} - reached:
        reached |= found
    assert reached == set(states)


@pytest.mark.parametrize(
    ("table", "events", "expected"),
    [
        (SERVER, [ServerLifecycleEvent.END_ORDERED], ServerState.ENDED),
        (SERVER, [ServerLifecycleEvent.SUPERVISOR_STARTED, ServerLifecycleEvent.END_ORDERED], ServerState.CLOSING),
        (
            SERVER,
            [ServerLifecycleEvent.SUPERVISOR_STARTED, *[ServerLifecycleEvent.END_ORDERED] * 3],
            ServerState.ENDING,
        ),
        (SUPERVISOR, [SupervisorEvent.KILL, SupervisorEvent.STARTED, SupervisorEvent.READY], SupervisorState.KILLED),
        (SUPERVISOR, [SupervisorEvent.STARTED, SupervisorEvent.LEAVE], SupervisorState.LEAVING_EARLY),
        (
            SUPERVISOR,
            [SupervisorEvent.STARTED, SupervisorEvent.READY, SupervisorEvent.LEAVE, SupervisorEvent.KILL],
            SupervisorState.LEAVING,
        ),
        (
            FORK_SERVER,
            [ForkServerEvent.IMPORTED, ForkServerEvent.SERVE, ForkServerEvent.CHANNEL_CLOSED],
            ForkServerState.PREPARED,
        ),
        (FORK_SERVER, [ForkServerEvent.IMPORTED, ForkServerEvent.SERVE] * 2, ForkServerState.SERVING),
        (
            UPGRADE,
            [UpgradeEvent.BEGIN, UpgradeEvent.IMPORTED, UpgradeEvent.REPLACE, UpgradeEvent.TRY_AGAIN],
            UpgradeState.TRYING_AGAIN,
        ),
        (
            UPGRADE,
            [UpgradeEvent.BEGIN, UpgradeEvent.IMPORTED, UpgradeEvent.ORDER, UpgradeEvent.FAIL],
            UpgradeState.NONE,
        ),
    ],
)
def test_lives(table: Mapping[Any, Mapping[Any, Any]], events: Sequence[Enum], expected: Enum) -> None:
    state = next(iter(table))
    for event in events:
        state = next_state(table, state, event)
    assert state is expected


@pytest.mark.parametrize(
    ("table", "state", "event"),
    [
        (SERVER, ServerState.ENDED, ServerLifecycleEvent.SUPERVISOR_STARTED),
        (SUPERVISOR, SupervisorState.ORDERED, SupervisorEvent.READY),
        (SUPERVISOR, SupervisorState.ENDED, SupervisorEvent.END),
        (FORK_SERVER, ForkServerState.IMPORTING, ForkServerEvent.SERVE),
        (UPGRADE, UpgradeState.TAKING_OVER, UpgradeEvent.BEGIN),
        (UPGRADE, UpgradeState.TRYING_AGAIN, UpgradeEvent.TRY_AGAIN),
    ],
)
def test_a_step_that_a_table_does_not_have_is_an_error(
    table: Mapping[Any, Mapping[Any, Any]], state: Enum, event: Enum
) -> None:
    with pytest.raises(IllegalTransitionError, match=rf"{event.name} in state {state.name} of {type(state).__name__}"):
        next_state(table, state, event)


class Forked:
    """A supervisor as the keeper sees it, and the end of its channel that a forked process has."""

    def __init__(self) -> None:
        self.seen = SupervisorProcess(0.0, {}, 1, "")
        self.process = Channel(self.seen.end_of_channel.dup())
        self.seen.give(end_given=True, now=0.0)


@pytest.fixture
def forked() -> Iterator[Forked]:
    one = Forked()
    yield one
    one.process.close()
    if one.seen.end is None:
        one.seen.reaped(-signal.SIGKILL, 0.0)


def test_a_word_that_a_supervisor_may_not_say_now_is_printed_and_changes_nothing(
    forked: Forked, capfd: pytest.CaptureFixture[str]
) -> None:
    forked.process.send(channel.ALIVE)  # before its first word
    forked.process.send(channel.STARTED, "7")
    forked.process.send(channel.STARTED, "8")
    forked.process.send(channel.READY, "serving")
    forked.process.send(channel.LEAVING, "3")
    forked.process.send(channel.READY, "serving again")
    forked.process.send(channel.LEAVING, "4")
    forked.process.send(channel.LAST_WORDS, "ValueError: a bug")
    assert forked.seen.receive(1.0) == (channel.READY, "serving", -1)
    assert forked.seen.receive(1.0) is None
    forked.seen.reaped(3, 1.0)
    assert forked.seen.pid == 7
    assert forked.seen.end is not None
    assert (forked.seen.end.state, forked.seen.end.exit_code) == (SupervisorState.LEAVING, 3)
    assert "ValueError: a bug" in forked.seen.describe_end(), "what it says after that is heard"
    assert capfd.readouterr().err.splitlines() == [
        f"lemonbus: the supervisor said '{word}' in the state '{state}': ignored"
        for state, word in (("ordered", "alive"), ("starting", "started"), ("leaving", "ready"), ("leaving", "leaving"))
    ]


def test_a_word_that_a_fork_server_may_not_say_now_is_printed_and_changes_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    seen = ForkServerProcess("boot", ["/bin/true"], 0.0)
    try:
        seen._channel.close()
        seen._channel, theirs = channel.pair()
        process = Channel(theirs)
        process.send(channel.CLOSED, "0")
        process.send(channel.PREPARED)
        seen.read()
        assert seen.state is ForkServerState.PREPARED
        process.close()
        seen.read()
        assert seen.state is ForkServerState.CLOSED
    finally:
        os.waitpid(seen.pid, 0)
        seen.close()
    assert capfd.readouterr().err == "lemonbus: a fork server said 'closed' in the state 'importing': ignored\n"


def test_a_supervisor_that_was_given_up_before_it_ran_is_killed_as_soon_as_it_runs(forked: Forked) -> None:
    assert forked.seen.kill("it gave no sign of life"), "its fork server is to be killed for it"
    with subprocess.Popen(["sleep", "60"]) as process:
        forked.process.send(channel.STARTED, str(process.pid))
        assert forked.seen.receive(1.0) is None
        assert wait_for(process.poll, "it is killed") == -signal.SIGKILL
    assert forked.seen.state is SupervisorState.KILLED


def test_one_that_ran_and_ended_before_its_first_word_was_read_has_ended(forked: Forked) -> None:
    keeper = Keeper.__new__(Keeper)  # without its signals and fork servers
    keeper._supervisor = forked.seen
    forked.process.send(channel.STARTED, "4000000")
    forked.process.send(channel.LEAVING, "2")
    forked.process.close()
    keeper._reaped(4_000_000, 2 << 8, 1.0)
    assert forked.seen.end is not None, "the server would wait for its end for ever"
    assert (forked.seen.end.state, forked.seen.end.exit_code) == (SupervisorState.LEAVING_EARLY, 2)


def test_one_that_never_ran_has_ended_when_its_channel_is_closed(forked: Forked) -> None:
    forked.process.send(channel.LAST_WORDS, "no process can be started")
    forked.process.close()
    assert forked.seen.receive(1.0) is None
    assert forked.seen.end is not None
    assert (forked.seen.end.state, forked.seen.end.status) == (SupervisorState.ORDERED, None)
    assert forked.seen.describe_end() == "it ended before it ran: no process can be started"
    assert not forked.seen.is_open
    forked.seen.send(channel.END)  # no error
