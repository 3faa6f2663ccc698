"""The downloads: one job process for each model that is being downloaded. Further calls for the same model join it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.messages.calls import Progress
from protocol.messages.model_files import CheckpointSource, DownloadReport, Pulled, Registration
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.persistence.server_record import PausedDownload

SHOWN_S: Final = 30.0
"""How long a complete download is still shown."""
MAX_ENDED: Final = 64


class DownloadWaiter(NamedTuple):
    """A call that waits for a download."""

    peer: str
    number: int
    progress: bool


class RunningDownload:
    """The download of one model."""

    def __init__(
        self, job: str, model: str, sources: list[CheckpointSource], pending: CatalogueEntry | None = None
    ) -> None:
        """``pending``: what to register once its files are there."""
        self.job = job
        self.model = model
        self.sources = sources
        self.pending = pending
        self.registration: Registration | None = None
        """What ``pending`` was made of."""
        self.provisional = False
        """Whether its model was adopted for this download, to be forgotten if that fails."""
        self.waiters: list[DownloadWaiter] = []
        self.last: Progress | None = None
        self.completed_bytes = 0
        """The sizes of the files before the present one."""
        self.result: Pulled | Failure | None = None
        self.then: list[Callable[[], None]] = []
        """Called when its job has ended and the waiting calls were answered."""

    def progressed(self, progress: Progress) -> None:
        """Note how far it is."""
        last = self.last
        if last is not None and progress.file_index > last.file_index:
            self.completed_bytes += last.bytes_total
        elif last is not None and progress.file_index < last.file_index:
            self.completed_bytes = 0  # it has begun again, from another source
        self.last = progress

    @property
    def report(self) -> DownloadReport:
        """Its state while it runs."""
        return DownloadReport(self.model, self.last, completed_bytes=self.completed_bytes)


class EndedDownload(NamedTuple):
    """A download that has ended, and when."""

    report: DownloadReport
    at: float
    registration: Registration | None = None
    """What its model was to be registered as."""


class DownloadRegistry:
    """The register of downloads. Pure: other files own the processes."""

    def __init__(self, paused: Callable[[], Mapping[str, PausedDownload]] = dict) -> None:
        """No download runs. ``paused()`` returns the paused ones, by model."""
        self._paused = paused
        self._by_model: dict[str, RunningDownload] = {}
        self._by_job: dict[str, RunningDownload] = {}
        self._ended: dict[str, EndedDownload] = {}

    def reports(self, now: float) -> list[DownloadReport]:
        """Return the running downloads, the paused ones, then those that ended within the last :data:`SHOWN_S` seconds."""
        return [each for each in self.listed(now) if self._since(each.model, now) < SHOWN_S or not each.ended]

    def listed(self, now: float) -> list[DownloadReport]:
        """Return the same, and all that failed and were neither begun again nor dismissed."""
        self._ended = {
            model: ended
            for model, ended in self._ended.items()
            if ended.report.failure is not None or now - ended.at < SHOWN_S
        }
        shown = [self.report(model) for model in sorted(self._by_model)]
        shown += [self.report(model) for model in sorted(self._paused()) if model not in self._by_model]
        known = {each.model for each in shown}
        return shown + [ended.report for model, ended in self._ended.items() if model not in known]

    def _since(self, model: str, now: float) -> float:
        ended = self._ended.get(model)
        return now - ended.at if ended is not None else 0.0

    def report(self, model: str) -> DownloadReport:
        """Return the state of a model's download. One that neither runs nor is paused has ended."""
        download, paused = self._by_model.get(model), self._paused().get(model)
        if download is not None:
            return download.report
        if paused is not None:
            return DownloadReport(model, paused.last, paused=True, completed_bytes=paused.completed_bytes)
        ended = self._ended.get(model)
        return ended.report if ended is not None else DownloadReport(model, ended=True)

    def note_end(
        self, report: DownloadReport, failure: Failure | None, now: float, registration: Registration | None = None
    ) -> None:
        """Remember the end of a download, or that there was nothing to download. ``report``: how far it was."""
        self.dismiss(report.model)
        if len(self._ended) >= MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        report = structs.replace(report, ended=True, paused=False, failure=failure)
        self._ended[report.model] = EndedDownload(report, now, registration)

    def has_ended(self, model: str) -> bool:
        """Return whether the end of a model's download is remembered."""
        return model in self._ended

    def cancelled(self, model: str) -> EndedDownload | None:
        """Return the download of a model if it was cancelled, and neither begun again nor dismissed."""
        ended = self._ended.get(model)
        failure = ended.report.failure if ended is not None else None
        return ended if failure is not None and failure.code is Code.OPERATOR_CANCELLED else None

    def dismiss(self, model: str) -> None:
        """Forget the end of a model's download."""
        self._ended.pop(model, None)

    def running(self) -> list[str]:
        """Return the models that are being downloaded."""
        return sorted(self._by_model)

    def running_for(self, model: str) -> RunningDownload | None:
        """Return the download of a model, None if there is none."""
        return self._by_model.get(model)

    def join(self, model: str, waiter: DownloadWaiter | None) -> RunningDownload | None:
        """Add a waiting call to a running download; return None if there is none."""
        download = self._by_model.get(model)
        if download and waiter:
            download.waiters.append(waiter)
        return download

    def begin(
        self,
        job: str,
        model: str,
        sources: list[CheckpointSource],
        waiter: DownloadWaiter | None,
        pending: CatalogueEntry | None = None,
    ) -> RunningDownload:
        """Register a new download, done by ``job``."""
        self.dismiss(model)
        download = self._by_model[model] = self._by_job[job] = RunningDownload(job, model, sources, pending)
        if waiter:
            download.waiters.append(waiter)
        return download

    def of_job(self, job: str) -> RunningDownload | None:
        """Return the download of a job."""
        return self._by_job.get(job)

    def ended(self, job: str, why: str) -> RunningDownload | None:
        """Remove and return the download of a job that has ended. It always has a result."""
        download = self._by_job.pop(job, None)
        if download is None:
            return None
        self._by_model.pop(download.model, None)
        if download.result is None:
            reason = f"The download of {download.model} was interrupted ({why}); what was fetched is kept"
            download.result = Failure(Code.DOWNLOAD_FAILED, reason, model=download.model)
        return download

    def forget(self, peer: str, number: int | None = None) -> None:
        """Remove a waiting call (or all calls of a peer). The download goes on."""
        for download in self._by_model.values():
            download.waiters = [
                waiter
                for waiter in download.waiters
                if waiter.peer != peer or (number is not None and waiter.number != number)
            ]
