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
from supervisor.processes.placement import Survivor
from supervisor.runtime.jobs import Jobs, OnEnded

log = logs.get_logger()

TakeOverJob = Callable[[str, Any], OnEnded | None]
"""(job, its order) → what to call at its end; None if the job is not wanted."""


class TakenOverJobs:
    """The jobs that outlived a supervisor."""

    def __init__(self, jobs: Jobs, kinds: Mapping[type, TakeOverJob], ended: Callable[[str], None]) -> None:
        """``kinds``: type of an order → what takes its job over. ``ended(job)`` is called when one of them has ended."""
        self._jobs, self._ended = jobs, ended
        self._kinds: dict[type, TakeOverJob] = {**kinds, StartRemoval: _leave_alone}
        self._adopted: set[str] = set()
        self._orders: dict[str, Any] = {}
        self._on_ended: dict[str, OnEnded] = {}

    def adopt(self, survivor: Survivor) -> None:
        """Watch a job from now on."""
        self._adopted.add(survivor.peer)
        self._jobs.adopt(survivor, self._job_ended)

    def end(self, survivor: Survivor) -> None:
        """Kill a job. Nothing more that it reports is taken over."""
        self._jobs.adopt(survivor, self._job_ended)
        self._jobs.kill(survivor.peer)

    def reported(self, job: str, snapshot: JobSnapshot) -> None:
        """Note what a job does; raises ``MalformedError`` for an order that does not decode."""
        order = envelope.decode(snapshot.order)[0] if snapshot.order else None
        if job in self._adopted:
            self._orders[job] = order

    def take_over(self) -> int:
        """Let the jobs go on that can, and end the others; return how many go on."""
        for job, order in self._orders.items():
            take_over = self._kinds.get(type(order))
            on_ended = take_over(job, order) if take_over is not None else None
            if on_ended is not None:
                self._on_ended[job] = on_ended
            else:
                log.info("job ended, it is started again on request", job=job, order=type(order).__name__)
                self._jobs.kill(job)
        return len(self._on_ended)

    def _job_ended(self, job: str, why: str) -> None:
        self._orders.pop(job, None)
        on_ended = self._on_ended.pop(job, None)
        if on_ended is not None:
            on_ended(job, why)
        self._ended(job)


def _leave_alone(_job: str, _order: StartRemoval) -> OnEnded:
    return lambda _job, _why: None
