"""Downloads: one job process for each model, and the calls that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.calls import Progress
from protocol.messages.model_files import ListDownloads, Pulled, PullFailed, StartPull
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.handlers.model_targets import ModelTargets
from supervisor.internal_errors import InternalErrors
from supervisor.models import files, registration
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.registry import ModelRegistry
from supervisor.processes.download_registry import DownloadRegistry, DownloadWaiter, RunningDownload
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs, OnEnded
from supervisor.scheduler.scheduler import Scheduler

MODULE: Final = "workers.jobs.pull"
MAX_DOWNLOADS: Final = 8
"""How many downloads run at a time: each is a process, and they share one network connection."""

log = logs.get_logger()


@dataclass(frozen=True)
class Downloads:
    """The downloads in progress. ``registry``: what is downloaded, and who waits for it."""

    settings: Settings
    loop: Loop
    registry: DownloadRegistry
    models: ModelRegistry
    targets: ModelTargets
    scheduler: Scheduler
    decisions: Decisions
    jobs: Jobs
    calls: GatewayCalls
    errors: InternalErrors

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {Progress: self._progress, Pulled: self._result, PullFailed: self._result, ListDownloads: self._list}

    def fetch(
        self,
        model: str,
        waiter: DownloadWaiter | None = None,
        *,
        pending: CatalogueEntry | None = None,
        present: Sequence[str] = (),
    ) -> None:
        """Download a model, or join the running download; raises ``offline``, or ``overloaded`` if too many run.

        ``pending``: register it when the download has succeeded. ``present``: files that are already there.
        """
        running = self.join(model, waiter)
        if running:
            running.pending = pending or running.pending
            return
        if self.settings.offline and not present:
            reason = f"Model {model} is not on this machine, and the setting `offline` forbids downloads"
            raise Failure(Code.OFFLINE, reason, model=model).raised()
        if len(self.registry.running()) >= MAX_DOWNLOADS:
            explanation = f"{MAX_DOWNLOADS} models are being downloaded already"
            raise Failure(Code.OVERLOADED, explanation, model=model, retry_after=10.0).raised()
        sources = pending.sources if pending else self.models.resolve(model).sources
        order = StartPull(model, sources, self.settings.cache_dir, list(present))
        job = self.jobs.start(MODULE, self._ended, order)
        self.registry.begin(job, model, sources, waiter, pending)
        log.info("download started", model=model, job=job)

    def join(self, model: str, waiter: DownloadWaiter | None) -> RunningDownload | None:
        """Let a call wait for a running download, and send it the latest progress; return None if there is none."""
        download = self.registry.join(model, waiter)
        if download is not None and download.last is not None and waiter is not None and waiter.progress:
            self.calls.tell(waiter.peer, structs.replace(download.last, number=waiter.number))
        return download

    def fetch_for_scheduler(self, model: str) -> None:
        """Download a model that requests wait for. If the download is refused, they get the failure."""
        try:
            self.fetch(model)
        except LemonbusError as problem:
            self.scheduler.download_ended(model, None, problem.failure, self.loop.now())
            self.decisions.carry_out()

    def _progress(self, job: str, message: Progress, _payload: bytes) -> None:
        """Pass the progress of a job on to the calls that want it."""
        download = self.registry.of_job(job)
        if download is not None:
            last = download.last
            if last is None or last.file != message.file or message.percent // 10 > last.percent // 10:
                log.info("downloading", model=download.model, file=message.file, percent=message.percent)
            download.last = message
            for waiter in download.waiters:
                if waiter.progress:
                    self.calls.tell(waiter.peer, structs.replace(message, number=waiter.number))

    def _result(self, job: str, message: Pulled | PullFailed, _payload: bytes) -> None:
        """Keep the result of a job until its process has ended."""
        self.jobs.dismiss(job)
        download = self.registry.of_job(job)
        if download is not None:
            download.result = message if isinstance(message, Pulled) else message.failure

    def take_over(self, job: str, order: StartPull) -> OnEnded | None:
        """Register a download that an earlier supervisor's job does; None if another job downloads the model."""
        if self.registry.running_for(order.name) is not None:
            return None
        self.registry.begin(job, order.name, order.sources, None)
        return self._ended

    def cancel(self, model: str, why: Failure, then: Callable[[], None]) -> bool:
        """End a download, refuse the waiting calls with ``why``, then call ``then``; return False if there is none."""
        download = self.registry.running_for(model)
        if download is None:
            return False
        download.result = why
        download.then.append(then)
        self.jobs.kill(download.job)
        return True

    def _ended(self, job: str, why: str) -> None:
        download = self.registry.ended(job, why)
        if download is not None and download.result is not None:
            outcome: Pulled | Failure = download.result
            if isinstance(outcome, Pulled) and download.pending:
                outcome = self._registered(download.pending) or outcome
            if isinstance(outcome, Pulled):
                outcome = self._kept(download.model) or outcome
            elif download.provisional and self.scheduler.view.model(download.model) is None:
                self.models.adopted.forget(download.model)
            failure = outcome if isinstance(outcome, Failure) else None
            self.registry.note_end(download.model, download.last, failure, self.loop.now())
            self._report_outcome(download, outcome)
            self._load_downloaded(download.model, outcome)
            for follows in download.then:
                follows()
            self.decisions.reconcile()

    def _registered(self, entry: CatalogueEntry) -> Failure | None:
        """Register a downloaded model; return the failure if that did not succeed."""
        try:
            found = files.locate(entry, self.settings.cache_dir)
            self.models.register(entry.name, registration.downloaded_item(entry, found))
        except Exception as problem:  # noqa: BLE001 - the calls that wait for the download must be answered
            return self.errors.failure_of(problem, model=entry.name)
        log.info("registered", model=entry.name, checkpoint=entry.checkpoint, recipe=entry.recipe)
        return None

    def _kept(self, model: str) -> Failure | None:
        """Keep an adopted model beyond the server's end; return the failure if that cannot be written."""
        try:
            self.models.adopted.keep(model)
        except LemonbusError as problem:
            return problem.failure
        return None

    def _report_outcome(self, download: RunningDownload, outcome: Pulled | Failure) -> None:
        if isinstance(outcome, Failure):
            wanted = download.then or self.scheduler.view.closing
            say, event = (log.info, "download stopped") if wanted else (log.error, "download failed")
            say(event, model=download.model, reason=outcome.message, detail=outcome.detail)
        else:
            log.info("download complete", model=download.model)
        for waiter in download.waiters:
            self.calls.reply(waiter.peer, waiter.number, outcome, when_written=True)

    def _load_downloaded(self, model: str, outcome: Pulled | Failure) -> None:
        """If a request waits for the downloaded model, load it."""
        options = self.scheduler.requested_options(model)
        spec = None
        if self.scheduler.view.model(model) is not None and isinstance(outcome, Pulled):
            try:
                spec = self.targets.resolve(model, options).spec
            except Exception as problem:  # noqa: BLE001 - the requests that wait for the model must be answered
                outcome = self.errors.failure_of(problem, model=model)
        failure = outcome if isinstance(outcome, Failure) else None
        self.scheduler.download_ended(model, spec, failure, self.loop.now())

    def _list(self, peer: str, call: ListDownloads, _payload: bytes) -> None:
        """Answer with the downloads that run or have just ended."""
        self.calls.answer(peer, call.number, self.registry.reports(self.loop.now()))
