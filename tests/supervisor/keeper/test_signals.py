"""Signals that a tool may send by mistake."""

from __future__ import annotations

import signal

from tests.supervisor.keeper.keeper_process import KeeperProcess


def test_a_signal_to_open_the_log_again_changes_nothing() -> None:
    with KeeperProcess("serve") as keeper:
        keeper.wait_started(0)
        keeper.send(signal.SIGUSR1)
        keeper.wait_line("lemonbus: SIGUSR1 changes nothing")
        keeper.send(signal.SIGHUP)
        keeper.wait_line("told 0 reload")
