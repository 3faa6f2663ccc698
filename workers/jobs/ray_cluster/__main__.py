"""The process: a loop for the supervisor, and a thread for Ray. It runs as long as the server."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import traceback
from collections import deque
from functools import partial
from typing import Final

import msgspec
from msgspec import structs

from protocol.config.ray_address import find_gcs
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.messages.ray_cluster import RayClusterReport, RequestRayResources, WatchRayCluster
from protocol.runtime import logs
from protocol.runtime.process_context import ProcessContext
from protocol.wire.bus_address import ClusterMembership
from workers.jobs.job import JobProcess
from workers.jobs.ray_cluster.agent_plan import AgentOrder, PlannedAgent
from workers.jobs.ray_cluster.driver import RayDriver

_WATCH_INTERVAL_S: Final = 1.0
_SILENCE_S: Final = 5.0
"""How long a call of Ray may take before health says that Ray does not answer."""
_END_S: Final = 2.0
"""How long the end of the thread may take."""
RETRY_S: Final = 2.0
"""How long after a failure to look again for the cluster of this machine."""

log = logs.get_logger()


class RayJob:
    """One job, from its order to the end of the server."""

    def __init__(self, job: JobProcess, context: ProcessContext) -> None:
        """Wait for the order."""
        self._job, self._context = job, context
        self._driver: RayDriver | None = None
        self._thread_ended = threading.Event()
        self._reports: deque[RayClusterReport] = deque()
        self._last = RayClusterReport()
        self._hangs = False
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        job.loop.on_readable(self._woken, self._take_reports)
        job.on_message = self._received
        job.on_shutdown = self._stop

    def _received(self, message: object) -> None:
        if isinstance(message, WatchRayCluster):
            self._begin(self._job.settings)
        elif isinstance(message, RequestRayResources) and self._driver is not None:
            self._driver.request_resources(message.bundles)

    def _begin(self, settings: Settings) -> None:
        membership = self._context.bus.cluster
        try:
            gcs = find_gcs(settings, os.environ)
        except LemonbusError as problem:
            self._job.report(RayClusterReport(problem=str(problem)))
            self._job.loop.call_later(RETRY_S, partial(self._begin, settings))  # `ray start` may follow
            return
        if membership is None:
            raise ValueError("a server without a cluster has nothing to ask Ray for")
        orders = AgentOrders(membership, self._context.boot, settings.grace)
        self._driver = RayDriver(
            gcs, f"lemonbus-{orders.server}", self._context.boot, settings.ray_gpus, orders.order_for, self._report
        )
        self._job.work(partial(self._drive, self._driver), self._drive_ended)
        self._job.loop.every(_WATCH_INTERVAL_S, self._watch)

    def _drive(self, driver: RayDriver) -> str:
        """Work in the thread until the end; return what went wrong, as a traceback."""
        try:
            driver.run()
        except Exception:  # noqa: BLE001 - whatever Ray has raised, the next job connects anew
            return traceback.format_exc()
        finally:
            self._thread_ended.set()
        return ""

    def _drive_ended(self, problem: str) -> None:
        """End the job, which cannot watch the cluster any more. The supervisor starts the next one."""
        if problem:
            log.error("the thread that talks to Ray failed", detail=problem)
        self._job.loop.stop()

    def _report(self, report: RayClusterReport) -> None:
        """Hand a report to the loop."""
        self._reports.append(report)
        os.eventfd_write(self._woken, 1)

    def _take_reports(self) -> None:
        os.eventfd_read(self._woken)
        while self._reports:
            self._last = self._reports.popleft()
            self._hangs = False
            self._job.report(self._last)

    def _watch(self) -> None:
        """Say so if Ray does not answer, and when it does again."""
        if self._driver is None:
            return
        hangs = time.monotonic() - self._driver.called_at > _SILENCE_S
        if hangs != self._hangs:
            self._hangs = hangs
            problem = "the head of the Ray cluster does not answer; what runs goes on"
            self._job.report(structs.replace(self._last, problem=problem) if hangs else self._last)

    def _stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()
            self._thread_ended.wait(_END_S)


class AgentOrders:
    """What each agent of this server is started with, but for the directories of its node."""

    def __init__(self, membership: ClusterMembership, boot: str, grace: float) -> None:
        """``membership``: of the head, whose own part is left out."""
        self._membership, self._boot, self._grace = structs.replace(membership, listen=""), boot, grace
        self.server: Final = hashlib.sha256(membership.keys.supervisor.encode()).hexdigest()[:12]
        """Stands for this server among others that use the same Ray cluster; a restart does not change it."""

    def order_for(self, agent: PlannedAgent) -> str:
        """Return the order for one agent, as JSON."""
        order = AgentOrder(
            server=self.server,
            node=agent.name,
            boot=self._boot,
            membership=self._membership,
            grace=self._grace,
            labels=agent.node.labels,
            resources=agent.node.custom_resources,
        )
        return msgspec.json.encode(order).decode()


def main() -> None:
    """Run the job."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")
    job = JobProcess()
    if not logs.debug_enabled():  # Ray prints pages of its own
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nothing, stream.fileno())
    RayJob(job, ProcessContext.from_environment())
    job.run()


if __name__ == "__main__":
    main()
