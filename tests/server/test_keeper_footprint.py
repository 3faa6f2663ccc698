"""The keeper waits for what it has started; it takes no processor time from it."""

from __future__ import annotations

import psutil

from tests.support import processes
from tests.support.server import LemonbusServer


def seconds(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def test_the_keeper_does_not_spin_while_the_supervisor_is_imported(shared_server: LemonbusServer) -> None:
    (fork_server,) = [each.pid for each in shared_server.process_tree() if processes.name(each.pid) == "lemonbus-fork"]
    assert seconds(shared_server.keeper_pid) < seconds(fork_server) / 3, "to import takes most of its time"
