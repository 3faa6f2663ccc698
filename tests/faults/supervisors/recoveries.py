"""Supervisors that have taken over after a death: waiting for one, its reports in the log and in health, and its counters."""

from __future__ import annotations

import contextlib
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

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


def counters(server: LemonbusServer) -> dict[str, float]:
    """Return every series of every counter and histogram of the server itself, from whichever supervisor answers."""
    answer = server.client.get("/metrics", 40.0, **server.admin_headers)
    assert answer.status == 200, answer
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        if family.name.startswith("lemonbus_") and family.type in ("counter", "histogram")
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def fallen(before: dict[str, float], after: dict[str, float]) -> dict[str, tuple[float, float | None]]:
    """Return the series that are gone or lower than before."""
    return {name: (value, after.get(name)) for name, value in before.items() if after.get(name, -1.0) < value}
