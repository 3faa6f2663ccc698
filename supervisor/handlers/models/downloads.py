"""Downloads: one job process for each model, and the calls that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError, printable
from protocol.messages.calls import Progress
from protocol.messages.model_files import (
    CancelDownload,
    ListDownloads,
    PauseDownload,
    Pulled,
    PullFailed,
    Registration,
    StartPull,
)
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.handlers.models.download_outcomes import DownloadOutcomes
from supervisor.models import registration as registrations
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.download_registry import DownloadRegistry, DownloadWaiter, RunningDownload
from supervisor.models.options import load_options
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import PausedDownload, ServerRecord
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs, OnEnded
from supervisor.scheduler.scheduler import Scheduler

MODULE: Final = "workers.jobs.pull"
MAX_DOWNLOADS: Final = 8
"""How many downloads run at a time: each is a process, and they share one network connection."""

log = logs.get_logger()


class Downloads:
    """The downloads in progress. ``registry``: what is downloaded, and who waits for it."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        registry: DownloadRegistry,
        record: ServerRecord,
        models: ModelRegistry,
        scheduler: Scheduler,
        decisions: Decisions,
        jobs: Jobs,
        calls: GatewayCalls,
        outcomes: DownloadOutcomes,
    ) -> None:
        self._settings, self._loop, self._registry, self._record = settings, loop, registry, record
        self._models, self._scheduler, self._decisions = models, scheduler, decisions
        self._jobs, self._calls, self._outcomes = jobs, calls, outcomes

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            Progress: self._progress,
            Pulled: self._result,
            PullFailed: self._result,
            ListDownloads: self._list,
            PauseDownload: self._pause,
            CancelDownload: self._cancel,
        }

    def fetch(
        self,
        model: str,
        waiter: DownloadWaiter | None = None,
        *,
        pending: CatalogueEntry | None = None,
        registration: Registration | None = None,
        present: Sequence[str] = (),
    ) -> None:
        """Download a model, or join the running download; raises ``offline``, or ``overloaded`` if too many run.

        ``pending``: register it, which is that ``registration``, when the download has succeeded. ``present``: files
        that are already there.
        """
        running = self.join(model, waiter)
        if running:
            if pending:
                running.pending, running.registration = pending, registration
            return
        if self._settings.offline and not present:
            reason = f"Model {model} is not on this machine, and the setting `offline` forbids downloads"
            raise Failure(Code.OFFLINE, reason, model=model).raised()
        if len(self._registry.running()) >= MAX_DOWNLOADS:
            explanation = f"{MAX_DOWNLOADS} models are being downloaded already"
            raise Failure(Code.OVERLOADED, explanation, model=model, retry_after=10.0).raised()
        sources = pending.sources if pending else self._models.resolve(model).sources
        self._record.download_resumed(model)
        order = StartPull(model, sources, self._settings.cache_dir, list(present), registration)
        job = self._jobs.start(MODULE, self._ended, order)
        self._registry.begin(job, model, sources, waiter, pending).registration = registration
        log.info("download started", model=model, job=job)

    def join(self, model: str, waiter: DownloadWaiter | None) -> RunningDownload | None:
        """Let a call wait for a running download, and send it the latest progress; return None if there is none."""
        download = self._registry.join(model, waiter)
        if download is not None and download.last is not None and waiter is not None and waiter.progress:
            self._calls.tell(waiter.peer, structs.replace(download.last, number=waiter.number))
        return download

    def fetch_for_scheduler(self, model: str) -> None:
        """Download a model that requests wait for. If the download is refused, they get the failure."""
        try:
            if model in self._record.paused_downloads:
                raise paused(model).raised()
            self.fetch(model)
        except LemonbusError as problem:
            self._scheduler.download_ended(model, None, problem.failure, self._loop.now())
            self._decisions.carry_out()

    def _progress(self, job: str, message: Progress, _payload: bytes) -> None:
        """Pass the progress of a job on to the calls that want it."""
        download = self._registry.of_job(job)
        if download is not None:
            last = download.last
            if last is None or last.file != message.file or message.percent // 10 > last.percent // 10:
                log.info("downloading", model=download.model, file=message.file, percent=message.percent)
            download.progressed(message)
            for waiter in download.waiters:
                if waiter.progress:
                    self._calls.tell(waiter.peer, structs.replace(message, number=waiter.number))

    def _result(self, job: str, message: Pulled | PullFailed, _payload: bytes) -> None:
        """Keep the result of a job until its process has ended."""
        self._jobs.dismiss(job)
        download = self._registry.of_job(job)
        if download is None:
            return
        if isinstance(message, Pulled):
            download.result = message
        elif download.result is None:  # else it was cancelled meanwhile
            download.result = message.failure

    def take_over(self, job: str, order: StartPull) -> OnEnded | None:
        """Register a download that an earlier supervisor's job does; None if it was paused, or another job downloads the model."""
        if self._registry.running_for(order.name) is not None or order.name in self._record.paused_downloads:
            return None
        try:
            pending = self.described(order.name, order.registration)
        except LemonbusError as problem:  # the configuration has changed meanwhile
            log.warning("download stopped", model=order.name, reason=problem.failure.message)
            return None
        self._registry.begin(job, order.name, order.sources, None, pending).registration = order.registration
        return self._ended

    def described(self, model: str, registration: Registration | None) -> CatalogueEntry | None:
        """Return the entry that a registration describes, None for None; raises ``invalid_request``."""
        if registration is None:
            return None
        directories = load_options.file_directories(self._settings)
        return registrations.entry_from_registration(model, registration, directories)

    def pausing(self, model: str) -> RunningDownload | None:
        """Return the download of a model that is paused while its job still ends, None if there is none."""
        return self._registry.running_for(model) if model in self._record.paused_downloads else None

    def _pause(self, peer: str, call: PauseDownload, _payload: bytes) -> None:
        """Stop a download, and answer when its job has ended. A paused one stays as it is."""
        model, download, answer = self._stopped_by(peer, call)
        if download is not None and not isinstance(download.result, Pulled):
            self._record.download_paused(
                model, PausedDownload(download.registration, download.last, download.completed_bytes)
            )
            self.cancel(model, paused(model), answer)
        elif model in self._record.paused_downloads:
            answer()
        else:
            raise _not_downloaded(model)

    def _cancel(self, peer: str, call: CancelDownload, _payload: bytes) -> None:
        """Stop a download or end its pause, and answer when its job has ended."""
        model, download, answer = self._stopped_by(peer, call)
        paused = self._record.paused_downloads.get(model)
        if download is None and paused is None and not self._registry.has_ended(model):
            raise _not_downloaded(model)
        report = self._registry.report(model)
        self._record.download_resumed(model)
        if download is not None and isinstance(download.result, Pulled):
            download.then.append(answer)
        elif download is not None:
            self.cancel(model, cancelled(model), answer)
        else:
            if paused is not None:
                self._registry.note_end(report, cancelled(model), self._loop.now(), paused.registration)
            answer()

    def _stopped_by(
        self, peer: str, call: PauseDownload | CancelDownload
    ) -> tuple[str, RunningDownload | None, Callable[[], None]]:
        """Return the model that a call means, its download if one runs, and what answers the call; raises ``conflict``."""
        known = self._models.known(call.model)
        model = known.name if known is not None else call.model
        self._models.check_not_deleting(model)
        return model, self._registry.running_for(model), partial(self._answer, peer, call, model)

    def _answer(self, peer: str, call: PauseDownload | CancelDownload, model: str) -> None:
        report = self._registry.report(model)
        if isinstance(call, CancelDownload) and call.remove:
            self._registry.dismiss(model)
        self._calls.answer(peer, call.number, report)

    def cancel(self, model: str, why: Failure, then: Callable[[], None]) -> bool:
        """End a download, refuse the waiting calls with ``why``, then call ``then``; return False if there is none."""
        download = self._registry.running_for(model)
        if download is None:
            return False
        download.result = why
        download.then.append(then)
        self._jobs.kill(download.job)
        return True

    def _ended(self, job: str, why: str) -> None:
        download = self._registry.ended(job, why)
        if download is not None and download.result is not None:
            self._outcomes.carry_out(download, download.result)
            for follows in download.then:
                follows()
            self._decisions.reconcile()

    def _list(self, peer: str, call: ListDownloads, _payload: bytes) -> None:
        """Answer with the downloads that run, are paused, have just ended or failed."""
        self._calls.answer(peer, call.number, self._registry.listed(self._loop.now()))


def paused(model: str) -> Failure:
    """Return why requests for a model are refused while its download is paused."""
    reason = f"the download of model {model} is paused: `lemonbus pull {model}` or POST /v1/pull resumes it"
    return Failure(Code.DOWNLOAD_PAUSED, reason, model=model)


def cancelled(model: str) -> Failure:
    """Return why waiting calls are refused when a download is cancelled."""
    return Failure(Code.OPERATOR_CANCELLED, f"the download of model {model} was cancelled", model=model)


def _not_downloaded(model: str) -> LemonbusError:
    reason = f"model {printable(model)} is not being downloaded"
    return Failure(Code.NOT_FOUND, reason, model=model, param="model_name").raised()
