"""Orders for job processes: kept until the process says hello."""

from __future__ import annotations

from pathlib import Path

import msgspec

from protocol.staff import Leave
from supervisor.house import House


def order(house: House, job: str, message: msgspec.Struct) -> None:
    """Keep an order for a job that is being started."""
    house.orders[job] = message


def begin(house: House, job: str) -> None:
    """A job's process is there: tell it what to do."""
    message = house.orders.pop(job, None)
    if message is not None:
        house.bus.send(job, message)


def release(house: House, job: str) -> None:
    """Let a job go whose result was read: it does not end before, because its end might be noticed first."""
    house.bus.send(job, Leave(0.0, "done"))


def ended(house: House, job: str) -> None:
    """A job's process is gone."""
    house.orders.pop(job, None)
    house.peers.remove(job)
    house.bus.forget(job)
    # One that was killed leaves the socket behind on which it would have published.
    Path(house.endpoint(job).removeprefix("ipc://")).unlink(missing_ok=True)
