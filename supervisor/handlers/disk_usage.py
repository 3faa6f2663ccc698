"""What the server has on the disk, and the removal of what nothing uses: a job process looks and removes, because a disk may be slow.

Calls for the same share a job. Two removals never run at the same time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.disk_usage import (
    DiskJobDone,
    DiskJobFailed,
    DiskReport,
    MeasureDisk,
    PruneDisk,
    StartDiskJob,
    StoredModel,
)
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.backends.inventory import installation_key
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs
from supervisor.scheduler.view import SchedulerView
from workers.backends.registry import DESCRIPTORS

MODULE: Final = "workers.jobs.disk_usage"
LIMIT_S: Final = 600.0
"""How long a disk may take. After that, the job is killed."""

log = logs.get_logger()


class _DiskJob:
    def __init__(self, order: StartDiskJob) -> None:
        self.order = order
        self.waiting: list[tuple[str, int]] = []
        self.result: DiskReport | Failure | None = None


class DiskCalls:
    """The looks at the disk in progress."""

    def __init__(
        self,
        loop: Loop,
        models: ModelRegistry,
        downloads: DownloadRegistry,
        record: ServerRecord,
        view: SchedulerView,
        jobs: Jobs,
        calls: GatewayCalls,
    ) -> None:
        """None is in progress."""
        self._loop, self._models, self._downloads, self._record = loop, models, downloads, record
        self._view, self._jobs, self._calls = view, jobs, calls
        self._by_job: dict[str, _DiskJob] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            MeasureDisk: self._measure,
            PruneDisk: self._prune,
            DiskJobDone: self._done,
            DiskJobFailed: self._failed,
        }

    def _measure(self, peer: str, call: MeasureDisk, _payload: bytes) -> None:
        self._join(peer, call.number, self._order())

    def _prune(self, peer: str, call: PruneDisk, _payload: bytes) -> None:
        order = self._order(only_unused=True, remove=not call.dry_run, prompt_caches=call.prompt_caches)
        others = [job.order for job in self._by_job.values() if job.order.remove and not _same(job.order, order)]
        if order.remove and others:
            raise Failure(Code.CONFLICT, "files are being removed already: try again later").raised()
        self._join(peer, call.number, order)

    def _order(self, *, only_unused: bool = False, remove: bool = False, prompt_caches: bool = False) -> StartDiskJob:
        """Return an order with everything that is used now."""
        models = [
            StoredModel(
                entry.name,
                [(source.checkpoint, source.mmproj) for source in entry.sources],
                [path for path in (entry.path, entry.mmproj, *entry.parts.values()) if path],
                [part.checkpoint for source in entry.sources for part in source.parts.values()],
            )
            for entry in self._models.all_entries()
        ]
        at_work = [model.spec for model in self._view.models() if model.worker and model.spec is not None]
        backends = set()
        for spec in at_work:
            descriptor = DESCRIPTORS.get(spec.recipe)
            backend = descriptor.backend(spec.backend) if descriptor is not None else None
            if backend is not None:
                backends.add("/".join(installation_key(spec.recipe, backend)))
        return StartDiskJob(
            models=models,
            downloads=[*self._downloads.running(), *self._record.paused_downloads],
            used_files=[
                path
                for spec in at_work
                for path in (spec.path, spec.mmproj, *spec.parts.values())
                if path.startswith("/")
            ],
            used_backends=sorted(backends),
            only_unused=only_unused,
            remove=remove,
            prompt_caches=prompt_caches,
        )

    def _join(self, peer: str, number: int, order: StartDiskJob) -> None:
        running = (job for job in self._by_job.values() if job.result is None and _same(job.order, order))
        job = next(running, None) or self._begin(order)
        job.waiting.append((peer, number))

    def _begin(self, order: StartDiskJob) -> _DiskJob:
        name = self._jobs.start(MODULE, self._ended, order)
        begun = self._by_job[name] = _DiskJob(order)
        self._loop.call_later(LIMIT_S, partial(self._jobs.kill, name))
        return begun

    def _done(self, job: str, message: DiskJobDone, _payload: bytes) -> None:
        self._jobs.dismiss(job)
        report = message.report
        for item in report.items:
            if item.removed:
                log.info(
                    "unused files removed",
                    kind=item.kind,
                    name=item.name,
                    path=item.path,
                    reason=item.unused,
                    bytes=item.freed,
                )
        self._settle(job, report)

    def _failed(self, job: str, message: DiskJobFailed, _payload: bytes) -> None:
        self._jobs.dismiss(job)
        log.error("disk job failed", reason=message.failure.message, detail=message.failure.detail)
        self._settle(job, message.failure)

    def _settle(self, job: str, result: DiskReport | Failure) -> None:
        found = self._by_job.get(job)
        if found is None or found.result is not None:
            return
        found.result = result
        for peer, number in found.waiting:
            self._calls.reply(peer, number, result)

    def _ended(self, job: str, why: str) -> None:
        self._settle(job, Failure(Code.INTERNAL, f"the look at the disk was interrupted ({why}); ask again"))
        del self._by_job[job]


def _same(one: StartDiskJob, other: StartDiskJob) -> bool:
    """Return whether two orders are for the same, whatever models there were when they were given."""
    fields = ("only_unused", "remove", "prompt_caches")
    return all(getattr(one, field) == getattr(other, field) for field in fields)
