"""What supervisors that took over after a death report in the log and in health, and waiting for one."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def recoveries(server: LemonbusServer) -> list[dict[str, Any]]:
    """What each supervisor that took over reported about it."""
    return [line for line in server.lines if line["event"] == "recovered"]


def recovered_since(server: LemonbusServer, count: int, deadline: float = 30.0) -> dict[str, Any]:
    """What the last supervisor that took over says it found. Waits for it; ``count`` had taken over before."""
    return wait_for(lambda: recoveries(server)[count:], "the next supervisor has taken over", deadline)[-1]


def kill_supervisor(server: LemonbusServer, *others: int) -> dict[str, Any]:
    """Kill the supervisor and other processes, wait until the next supervisor has taken over, and return what it found."""
    before = len(recoveries(server))
    for pid in (server.supervisor_pid, *others):
        os.kill(pid, signal.SIGKILL)
    return recovered_since(server, before)


def present_health(server: LemonbusServer) -> Any:
    """The health that the present supervisor reports: for a moment, a gateway still has the killed one's report."""
    return wait_for(lambda: None if (now := server.health())["status"] == "recovering" else now, "a report of its own")
