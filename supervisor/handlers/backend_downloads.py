"""Installations of backends in the form of downloads, for clients that list, pause and cancel them. Pure: other files own the jobs.

What is paused or has ended is only remembered by this supervisor.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from protocol.failures import Code, Failure, printable
from protocol.messages.backend_installs import InstallProgress
from protocol.messages.calls import Progress
from protocol.messages.model_files import DownloadReport
from supervisor.models.download_registry import DownloadRegistry
from supervisor.persistence.server_record import PausedDownload


class BackendDownloads:
    """The installations that run, are paused or have ended, by ``RECIPE:BACKEND``."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Know none. ``now``: returns the time of the loop."""
        self._now = now
        self._paused: dict[str, PausedDownload] = {}
        self._registry = DownloadRegistry(lambda: self._paused)

    def listed(self) -> list[DownloadReport]:
        """Return them as :class:`~protocol.messages.backend_installs.ListInstalls` lists them."""
        return self._registry.listed(self._now())

    def report(self, name: str) -> DownloadReport:
        """Return the state of one."""
        return self._registry.report(name)

    def job_of(self, name: str) -> str:
        """Return the job of a running one, empty if it does not run."""
        running = self._registry.running_for(name)
        return running.job if running is not None else ""

    def begin(self, job: str, name: str) -> None:
        """Note that an installation runs."""
        self._paused.pop(name, None)
        self._registry.begin(job, name, [], None)

    def progressed(self, job: str, message: InstallProgress) -> None:
        """Note how far an installation is."""
        running = self._registry.of_job(job)
        if running is not None:
            running.progressed(Progress(0, running.model, *structs.astuple(message)))

    def end(self, job: str, failure: Failure | None) -> None:
        """Note the end of a job, if it is an installation. After a ``failure`` with ``download_paused`` it is paused."""
        running = self._registry.ended(job, "")
        if running is None:
            return
        if failure is not None and failure.code is Code.DOWNLOAD_PAUSED:
            self._paused[running.model] = PausedDownload(None, running.last, running.completed_bytes)
        else:
            self._registry.note_end(running.report, failure, self._now())

    def installed(self, name: str) -> None:
        """Note that there was nothing to install."""
        self._paused.pop(name, None)
        self._registry.note_end(DownloadReport(name), None, self._now())

    def stop(self, name: str, why: Failure) -> None:
        """Stop one that does not run: unless ``why`` is a pause, its pause ends. Raises ``not_found`` if it is not listed."""
        paused = self._paused.get(name)
        if paused is None and not self._registry.has_ended(name):
            raise Failure(Code.NOT_FOUND, f"backend {printable(name)} is not being installed", param="id").raised()
        if paused is not None and why.code is not Code.DOWNLOAD_PAUSED:
            report = self.report(name)
            del self._paused[name]
            self._registry.note_end(report, why, self._now())

    def dismiss(self, name: str) -> None:
        """Forget the end of one."""
        self._registry.dismiss(name)
