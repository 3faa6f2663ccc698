"""Job processes: started for one order, which is kept until the process says hello, and cleared away at their end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from protocol import ids
from protocol.staff import Leave
from supervisor.house import House
from supervisor.processes import Child


def start(
    house: House, module: str, died: Callable[[House, str, str], None], order: msgspec.Struct | None = None
) -> tuple[str, Child]:
    """Start a job; return its name and its process. ``died`` is called once, with the job and why it ended."""
    job = ids.peer_id("job")
    if order is not None:
        house.orders[job] = order
    return job, house.processes.start("job", module, partial(died, house, job), {"LEMONBUS_PEER": job})


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
