"""The jobs of an earlier supervisor: downloads and installations go on, and calls that are made again join them.

A removal also goes on, because half a removal leaves a broken model. All other jobs are ended, and begun anew when
requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from protocol.messages.model_files import StartRemoval
from protocol.messages.recovery import JobSnapshot
from protocol.runtime import logs
from protocol.wire import envelope
from supervisor.processes.child_processes import ChildProcess
from supervisor.processes.surviving_processes import SurvivingProcess
from supervisor.runtime import jobs
from supervisor.runtime.jobs import OnEnded
from supervisor.runtime.supervisor import Supervisor

log = logs.get_logger()

TakeOver = Callable[[Supervisor, str, ChildProcess, Any], OnEnded | None]
"""(supervisor, job, its process, its order) → what to call at its end; None if the job is not wanted."""


class TakenOverJobs:
    """The jobs that outlived a supervisor."""

    def __init__(self, supervisor: Supervisor, kinds: Mapping[type, TakeOver], ended: Callable[[str], None]) -> None:
        """``kinds``: type of an order → what takes its job over. ``ended(job)`` is called when one of them has ended."""
        self._supervisor, self._ended = supervisor, ended
        self._kinds: dict[type, TakeOver] = {**kinds, StartRemoval: _leave_alone}
        self._children: dict[str, ChildProcess] = {}
        self._orders: dict[str, Any] = {}
        self._on_ended: dict[str, OnEnded] = {}

    def adopt(self, survivor: SurvivingProcess) -> None:
        """Watch a job from now on."""
        self._children[survivor.peer] = jobs.adopt(self._supervisor, survivor, self._job_ended)

    def end(self, survivor: SurvivingProcess) -> None:
        """Kill a job. Nothing more that it reports is taken over."""
        self._supervisor.processes.kill(jobs.adopt(self._supervisor, survivor, self._job_ended))

    def reported(self, job: str, snapshot: JobSnapshot) -> None:
        """Note what a job does; raises ``MalformedError`` for an order that does not decode."""
        self._orders[job] = envelope.decode(snapshot.order)[0] if snapshot.order else None

    def take_over(self, supervisor: Supervisor) -> int:
        """Let the jobs go on that can, and end the others; return how many go on."""
        for job, order in self._orders.items():
            child = self._children.get(job)
            take_over = self._kinds.get(type(order))
            on_ended = take_over(supervisor, job, child, order) if take_over is not None and child is not None else None
            if on_ended is not None:
                self._on_ended[job] = on_ended
            elif child is not None:
                log.info("job ended, it is started again on request", job=job, order=type(order).__name__)
                supervisor.processes.kill(child)
        return len(self._on_ended)

    def _job_ended(self, supervisor: Supervisor, job: str, why: str) -> None:
        self._children.pop(job, None)
        self._orders.pop(job, None)
        on_ended = self._on_ended.pop(job, None)
        if on_ended is not None:
            on_ended(supervisor, job, why)
        self._ended(job)


def _leave_alone(_supervisor: Supervisor, _job: str, _child: ChildProcess, _order: StartRemoval) -> OnEnded:
    return lambda _supervisor, _job, _why: None
