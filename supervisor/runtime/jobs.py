"""Job processes: each is started for one order, which is kept until the process says Hello.

The handler that starts a job knows its purpose, which calls wait for it, and when they are answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from protocol import ids
from protocol.failures import Failure
from protocol.messages.peers import Shutdown
from protocol.runtime import logs
from protocol.runtime.process_context import PEER_VARIABLE
from supervisor.processes.child_processes import ChildProcess
from supervisor.processes.surviving_processes import SurvivingProcess
from supervisor.runtime.supervisor import Supervisor

HELLO_TIMEOUT_S: Final = 20.0
"""How long a job may take to report. On a loaded machine, Python alone takes seconds."""

log = logs.get_logger()
OnEnded = Callable[[Supervisor, str, str], None]


def start(
    supervisor: Supervisor, module: str, on_ended: OnEnded, order: msgspec.Struct | None = None
) -> tuple[str, ChildProcess]:
    """Start a job; return its name and its process. ``on_ended`` is called once, with the job and why it ended."""
    job = ids.peer_id("job")
    if order is not None:
        supervisor.job_orders[job] = order
    ended = partial(_job_ended, supervisor, job, on_ended)
    child = supervisor.processes.start("job", module, ended, {PEER_VARIABLE: job})
    supervisor.job_processes[job] = child
    supervisor.loop.call_later(HELLO_TIMEOUT_S, partial(_kill_if_silent, supervisor, job))
    return job, child


def adopt(supervisor: Supervisor, survivor: SurvivingProcess, on_ended: OnEnded) -> ChildProcess:
    """Take over a job that an earlier supervisor started; ``on_ended`` as in :func:`start`."""
    ended = partial(_job_ended, supervisor, survivor.peer, on_ended)
    child = supervisor.job_processes[survivor.peer] = supervisor.processes.adopt(survivor, ended)
    return child


def _kill_if_silent(supervisor: Supervisor, job: str) -> None:
    """Kill a job that has not said Hello in time: it is stopped, or runs something else."""
    child = supervisor.job_processes.get(job)
    if child is not None and supervisor.peers.get(job) is None:
        log.error("job killed", job=job, why=f"it did not report within {HELLO_TIMEOUT_S:g} s of its start")
        supervisor.processes.kill(child)


def send_order(supervisor: Supervisor, job: str) -> None:
    """Send its order to a job that has said Hello and has none."""
    message = supervisor.job_orders.get(job)
    if message is not None:
        supervisor.bus.send(job, message)


def dismiss(supervisor: Supervisor, job: str) -> None:
    """Let a job exit after its result was read.

    A job waits for this, because its end might be noticed before its result.
    """
    supervisor.bus.send(job, Shutdown(0.0, "done"))


def reply(supervisor: Supervisor, peer: str, number: int, result: object, *, when_written: bool = False) -> None:
    """Answer a call that waited for a job, with a report or a failure, unless its gateway is gone.

    ``when_written``: hold back a report until the changed state files are on the disk.
    """
    if supervisor.peers.get(peer) is None:
        return
    if isinstance(result, Failure):
        supervisor.calls.refuse(peer, number, result)
    elif when_written:
        supervisor.calls.answer_when_written(peer, number, result)
    else:
        supervisor.calls.answer(peer, number, result)


def _job_ended(supervisor: Supervisor, job: str, on_ended: OnEnded, why: str) -> None:
    supervisor.job_orders.pop(job, None)
    supervisor.job_processes.pop(job, None)
    supervisor.peers.remove(job)
    supervisor.bus.forget(job)
    try:
        on_ended(supervisor, job, why)
    finally:
        supervisor.on_process_ended()
