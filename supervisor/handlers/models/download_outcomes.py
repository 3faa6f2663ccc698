"""What follows from the end of a download: the model is registered and kept, waiting calls are answered, waiting requests go on."""

from __future__ import annotations

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_files import Pulled
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.handlers.model_targets import ModelTargets
from supervisor.internal_errors import InternalErrors
from supervisor.models import files
from supervisor.models import registration as registrations
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.download_registry import DownloadRegistry, RunningDownload
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.scheduler.scheduler import Scheduler

log = logs.get_logger()


class DownloadOutcomes:
    """Carries out what follows. The job of the download has ended."""

    def __init__(
        self,
        cache_dir: str,
        loop: Loop,
        registry: DownloadRegistry,
        record: ServerRecord,
        models: ModelRegistry,
        targets: ModelTargets,
        scheduler: Scheduler,
        calls: GatewayCalls,
        errors: InternalErrors,
    ) -> None:
        self._cache_dir, self._loop, self._registry, self._record = cache_dir, loop, registry, record
        self._models, self._targets, self._scheduler = models, targets, scheduler
        self._calls, self._errors = calls, errors

    def carry_out(self, download: RunningDownload, outcome: Pulled | Failure) -> None:
        """Register and keep a downloaded model, note the end, answer the calls that wait, and tell the scheduler."""
        if isinstance(outcome, Pulled) and download.pending:
            outcome = self._registered(download.pending) or outcome
        if isinstance(outcome, Pulled):
            self._record.download_resumed(download.model)  # it was paused when it was complete already
            outcome = self._kept(download.model) or outcome
        elif download.provisional and self._scheduler.view.model(download.model) is None:
            self._models.adopted.forget(download.model)
        failure = outcome if isinstance(outcome, Failure) else None
        if failure is None or failure.code is not Code.DOWNLOAD_PAUSED:
            self._registry.note_end(download.report, failure, self._loop.now(), download.registration)
        self._report(download, outcome)
        self._load(download.model, outcome)

    def _registered(self, entry: CatalogueEntry) -> Failure | None:
        """Register a downloaded model; return the failure if that did not succeed."""
        try:
            found = files.locate(entry, self._cache_dir)
            self._models.register(entry.name, registrations.downloaded_item(entry, found))
        except Exception as problem:  # noqa: BLE001 - the calls that wait for the download must be answered
            return self._errors.failure_of(problem, model=entry.name)
        log.info("model registered", model=entry.name, checkpoint=entry.checkpoint, recipe=entry.recipe)
        return None

    def _kept(self, model: str) -> Failure | None:
        """Keep an adopted model beyond the server's end; return the failure if that cannot be written."""
        try:
            self._models.adopted.keep(model)
        except LemonbusError as problem:
            return problem.failure
        return None

    def _report(self, download: RunningDownload, outcome: Pulled | Failure) -> None:
        if isinstance(outcome, Failure):
            wanted = download.then or self._scheduler.view.closing
            fields = {"model": download.model, "reason": outcome.message, "detail": outcome.detail}
            if wanted:
                log.info("download stopped", **fields)
            else:
                log.error("download failed", **fields)
        else:
            log.info("download complete", model=download.model)
        for waiter in download.waiters:
            self._calls.reply(waiter.peer, waiter.number, outcome, when_written=True)

    def _load(self, model: str, outcome: Pulled | Failure) -> None:
        """If a request waits for the downloaded model, load it."""
        options = self._scheduler.view.requested_options(model)
        spec = None
        if self._scheduler.view.model(model) is not None and isinstance(outcome, Pulled):
            try:
                spec = self._targets.resolve(model, options).spec
            except Exception as problem:  # noqa: BLE001 - the requests that wait for the model must be answered
                outcome = self._errors.failure_of(problem, model=model)
        failure = outcome if isinstance(outcome, Failure) else None
        self._scheduler.download_ended(model, spec, failure, self._loop.now())
