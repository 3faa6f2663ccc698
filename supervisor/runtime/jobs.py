"""Job processes: started for one order, which is kept until the process says hello, and cleared away at their end.

What a job is for, who waits for it and when they are told is decided where it was started.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from protocol import ids
from protocol.failures import Failure
from protocol.messages.peers import Shutdown
from supervisor.runtime.processes import ChildProcess
from supervisor.runtime.supervisor import Supervisor

Died = Callable[[Supervisor, str, str], None]


def start(
    supervisor: Supervisor, module: str, died: Died, order: msgspec.Struct | None = None
) -> tuple[str, ChildProcess]:
    """Start a job; return its name and its process. ``died`` is called once, with the job and why it ended."""
    job = ids.peer_id("job")
    if order is not None:
        supervisor.job_orders[job] = order
    return job, supervisor.processes.start(
        "job", module, partial(_job_ended, supervisor, job, died), {"LEMONBUS_PEER": job}
    )


def send_order(supervisor: Supervisor, job: str) -> None:
    """A job's process is there: tell it what to do."""
    message = supervisor.job_orders.pop(job, None)
    if message is not None:
        supervisor.bus.send(job, message)


def dismiss(supervisor: Supervisor, job: str) -> None:
    """Let a job go whose result was read: it does not end before, because its end might be noticed first."""
    supervisor.bus.send(job, Shutdown(0.0, "done"))


def reply(supervisor: Supervisor, peer: str, number: int, result: object, *, when_written: bool = False) -> None:
    """Answer a call that waited for a job, with a report or a failure, unless its gateway is gone.

    ``when_written``: a report is held back until the state files that were changed are on the disk.
    """
    if supervisor.peers.get(peer) is None:
        return
    if isinstance(result, Failure):
        supervisor.refuse(peer, number, result)
    elif when_written:
        supervisor.answer_when_written(peer, number, result)
    else:
        supervisor.answer(peer, number, result)


def _job_ended(supervisor: Supervisor, job: str, died: Died, why: str) -> None:
    supervisor.job_orders.pop(job, None)
    supervisor.peers.remove(job)
    supervisor.bus.forget(job)
    died(supervisor, job, why)
    supervisor.on_process_ended()
