"""What Ray knows of its nodes, as the job that is its driver reports it. The job runs as long as the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from protocol import RELEASE
from protocol.messages.ray_cluster import RayClusterReport, RayNode, RequestRayResources, WatchRayCluster
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs, OnEnded

MODULE: Final = "workers.jobs.ray_cluster"
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
STABLE_S: Final = 60.0
"""After a job has run for this long, the next one is started after the shortest pause."""

log = logs.get_logger()


class RayNodes:
    """Keeps the job running, and what it has reported last."""

    def __init__(self, loop: Loop, jobs: Jobs, bus: SupervisorBus, closing: Callable[[], bool]) -> None:
        """Start nothing before :meth:`start`. ``closing`` returns whether the server ends."""
        self._loop, self._jobs, self._bus, self._closing = loop, jobs, bus, closing
        self._job = ""
        self._started = 0.0
        self._pause = 0.0
        self._report = RayClusterReport(problem="Ray has not answered yet")
        self._bundles: list[dict[str, float]] = []

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {RayClusterReport: self._reported}

    def start(self) -> None:
        """Start the job, unless that of an earlier supervisor goes on."""
        if not self._job and not self._closing():
            self._started = self._loop.now()
            self._job = self._jobs.start(MODULE, self._ended, WatchRayCluster(RELEASE))

    def take_over(self, job: str, order: WatchRayCluster) -> OnEnded | None:
        """Go on with the job of an earlier supervisor; return None if it is one of another release."""
        if order.release != RELEASE or self._job:
            return None
        self._job, self._started = job, self._loop.now()
        return self._ended

    def nodes(self) -> list[RayNode]:
        """Return the living nodes of the cluster but the head, by name, as they were reported last."""
        return self._report.nodes

    def problems(self) -> list[str]:
        """Return what does not work, as sentences."""
        nodes = [f"Ray's node {node.name}: {node.problem}" for node in self._report.nodes if node.problem]
        return [f"Ray: {self._report.problem}", *nodes] if self._report.problem else nodes

    def request_resources(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Ask Ray's autoscaler for what models need that fits no node; each list replaces the former one."""
        self._bundles = [dict(each) for each in bundles]
        if self._job:
            self._bus.send(self._job, RequestRayResources(self._bundles))

    def _reported(self, job: str, report: RayClusterReport, _payload: bytes) -> None:
        if job != self._job:
            return
        if report.problem != self._report.problem:
            if report.problem:
                log.warning("Ray does not work", reason=report.problem)
            else:
                log.info("Ray works", nodes=[node.name for node in report.nodes])
        if not report.problem and self._report.problem and self._bundles:
            # Another job may have connected, which knows of no earlier request.
            self._bus.send(job, RequestRayResources(self._bundles))
        self._report = report

    def _ended(self, job: str, why: str) -> None:
        if job != self._job or self._closing():
            return
        self._job = ""
        now = self._loop.now()
        self._pause = (
            FIRST_PAUSE_S if now - self._started >= STABLE_S else min(LONGEST_PAUSE_S, 2 * self._pause or FIRST_PAUSE_S)
        )
        problem = f"the job that talks to it has ended ({why}); what runs goes on"
        log.warning("Ray does not work", reason=problem, seconds_until_next=self._pause)
        self._report = RayClusterReport(self._report.nodes, problem)
        self._loop.call_later(self._pause, self.start)
