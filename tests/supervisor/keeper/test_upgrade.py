"""SIGUSR2: a supervisor of the version that is installed now takes over; one that cannot start changes nothing."""

from __future__ import annotations

import os
import signal

import pytest

from tests.supervisor.keeper.keeper_process import KeeperProcess
from tests.support import processes
from tests.support.waiting import wait_for


def fork_servers(keeper: KeeperProcess) -> list[int]:
    """The fork servers so far, in their order."""
    return [int(line.split()[1]) for line in keeper.lines if line.startswith("prepared")]


def test_a_new_version_takes_over() -> None:
    with KeeperProcess("serve") as keeper:
        first = keeper.wait_started(0)
        keeper.install("serve", "serve")
        keeper.send(signal.SIGUSR2)
        second = keeper.wait_started(1)
        assert keeper.lines.count("told 0 upgrade begun") == 1
        assert keeper.lines.count("told 0 hand over") == 1
        assert not processes.alive(first)
        assert keeper.wait_line("started 1").endswith(" -"), "this was not a death"
        former, present = fork_servers(keeper)
        wait_for(lambda: not processes.alive(former), "the former fork server is dismissed")
        os.kill(second, signal.SIGKILL)
        keeper.wait_started(2)
        assert fork_servers(keeper) == [former, present]


def test_an_upgrade_is_refused_while_another_one_is_not_complete() -> None:
    with KeeperProcess("serve") as keeper:
        keeper.wait_started(0)
        keeper.install("serve", "never_ready")
        keeper.send(signal.SIGUSR2)
        keeper.wait_started(1)
        keeper.send(signal.SIGUSR2)
        assert "not complete yet" in keeper.wait_line("told 1 upgrade refused")
        assert not any(line.startswith("told 1 upgrade failed") for line in keeper.lines)


def test_a_supervisor_of_a_new_version_that_is_killed_once_is_followed_by_another_one_of_it() -> None:
    with KeeperProcess("serve") as keeper:
        keeper.wait_started(0)
        keeper.install("serve", "die", "serve")
        keeper.send(signal.SIGUSR2)
        keeper.wait_started(2)
        former, present = fork_servers(keeper)
        wait_for(lambda: not processes.alive(former), "the former fork server is dismissed")
        assert processes.alive(present)
        assert not any("upgrade failed" in line for line in keeper.lines)


def test_a_new_version_that_is_killed_each_time_is_reported_and_the_old_one_goes_on() -> None:
    with KeeperProcess("serve") as keeper:
        keeper.wait_started(0)
        keeper.install("serve", "die", "die", "serve")
        keeper.send(signal.SIGUSR2)
        assert keeper.wait_line("told 3 upgrade failed").endswith("became ready: SIGKILL")
        former, present = fork_servers(keeper)
        wait_for(lambda: not processes.alive(present), "the fork server of the new version is dismissed")
        assert processes.alive(former)


def test_a_new_version_that_does_not_become_ready_is_reported_and_the_old_one_goes_on() -> None:
    with KeeperProcess("serve", upgrade=1.0) as keeper:
        keeper.wait_started(0)
        keeper.install("serve", "never_ready")
        keeper.send(signal.SIGUSR2)
        assert "did not serve within" in keeper.wait_line("told 2 upgrade failed")


@pytest.mark.parametrize("broken", ["unimportable", "fail", "refuse"])
def test_a_new_version_that_cannot_start_is_reported_and_the_old_one_goes_on(broken: str) -> None:
    with KeeperProcess("serve") as keeper:
        first = keeper.wait_started(0)
        keeper.install(broken)
        keeper.send(signal.SIGUSR2)
        if broken == "unimportable":
            assert "exit 7" in keeper.wait_line("told 0 upgrade failed")
            assert processes.alive(first), "it was never asked to hand over"
            return
        keeper.wait_started(1)  # of the new version
        keeper.wait_started(2)  # of the old one again
        assert keeper.wait_line("told 2 upgrade failed").startswith("no supervisor of the new version became ready")
        keeper.install("serve")
        keeper.send(signal.SIGUSR2)
        keeper.wait_started(3)


def test_a_supervisor_that_does_not_hand_over_is_killed_for_the_new_version() -> None:
    with KeeperProcess("deaf", hand_over=1.0) as keeper:
        first = keeper.wait_started(0)
        keeper.install("serve")
        keeper.send(signal.SIGUSR2)
        keeper.wait_started(1)
        assert not processes.alive(first)


def test_sigterm_during_an_upgrade_is_the_end() -> None:
    with KeeperProcess("serve") as keeper:
        keeper.wait_started(0)
        keeper.send(signal.SIGUSR2)
        keeper.send(signal.SIGTERM)
        assert keeper.wait_exit() == 0
        assert not keeper.left()


def test_a_supervisor_that_hands_over_by_itself_is_followed_at_once() -> None:
    with KeeperProcess("hand_over", "serve") as keeper:
        keeper.wait_started(1)
        leader = int(keeper.wait_line("leader"))
        assert processes.alive(leader), "what it started lives on"
