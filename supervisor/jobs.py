"""Job processes: started for one order, which is kept until the process says hello, and cleared away at their end.

What a job is for, who waits for it and when they are told is decided where it was started.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from protocol import ids
from protocol.failures import Failure
from protocol.staff import Leave
from supervisor.house import House
from supervisor.processes import Child

Died = Callable[[House, str, str], None]


def start(house: House, module: str, died: Died, order: msgspec.Struct | None = None) -> tuple[str, Child]:
    """Start a job; return its name and its process. ``died`` is called once, with the job and why it ended."""
    job = ids.peer_id("job")
    if order is not None:
        house.orders[job] = order
    return job, house.processes.start("job", module, partial(_ended, house, job, died), {"LEMONBUS_PEER": job})


def begin(house: House, job: str) -> None:
    """A job's process is there: tell it what to do."""
    message = house.orders.pop(job, None)
    if message is not None:
        house.bus.send(job, message)


def release(house: House, job: str) -> None:
    """Let a job go whose result was read: it does not end before, because its end might be noticed first."""
    house.bus.send(job, Leave(0.0, "done"))


def tell(house: House, peer: str, number: int, result: object) -> None:
    """End a call that waited for a job, with a report or a failure; a caller that is gone is not told."""
    if house.peers.get(peer) is None:
        return
    if isinstance(result, Failure):
        house.refuse(peer, number, result)
    else:
        house.answer(peer, number, result)


def _ended(house: House, job: str, died: Died, why: str) -> None:
    house.orders.pop(job, None)
    house.peers.remove(job)
    house.bus.forget(job)
    died(house, job, why)
    house.on_quiet()
