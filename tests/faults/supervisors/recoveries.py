"""Supervisors that have taken over after a death: waiting for one, and its reports in the log and in health."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def recoveries(server: LemonbusServer) -> list[dict[str, Any]]:
    """Return what each supervisor that took over has logged about it."""
    return [line for line in server.lines if line["event"] == "recovered"]


def recovered_since(server: LemonbusServer, count: int, deadline: float = 30.0) -> dict[str, Any]:
    """Wait for the next supervisor to take over, and return what it says it found; ``count``: how many had taken over before."""
    return wait_for(lambda: recoveries(server)[count:], "the next supervisor has taken over", deadline)[-1]


def kill_supervisor(server: LemonbusServer, *others: int) -> dict[str, Any]:
    """Kill the supervisor and other processes, wait until the next supervisor has taken over, and return what it found."""
    before = len(recoveries(server))
    processes.kill(server.supervisor_pid)
    for pid in others:
        with contextlib.suppress(ProcessLookupError):  # it may have ended since the test found it
            processes.kill(pid)
    return recovered_since(server, before)


def present_health(server: LemonbusServer) -> Any:
    """Return the health that the present supervisor reports: for a moment, a gateway still has the report of the killed one."""
    return wait_for(lambda: None if (now := server.health())["status"] == "recovering" else now, "a report of its own")
